/* Making expressions: see rx.h. */
#include "grammar/rx.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/utf8.h"

enum { MAX_NODES = 1 << 22 };

const char rx_no_memory[] = "out of memory";

/* ---- the store ---- */

static rx fail(rx_store *s, const char *why)
{
    if (!s->failed)
        s->failed = why;
    return RX_NOTHING;
}

bool rx_store_init(rx_store *s, vt_arena *arena)
{
    *s = (rx_store){.arena = arena, .n_slots = 512, .fuel = INT64_MAX};
    s->slot = vt_calloc((size_t)s->n_slots, sizeof *s->slot);
    if (!s->slot)
        return false;
    s->cap = 256;
    s->node = vt_calloc((size_t)s->cap, sizeof *s->node);
    if (!s->node)
        return false;
    s->node[RX_NOTHING] = (rx_node){.kind = RX_KIND_NOTHING,
                                    .plain = true,
                                    .text = true,
                                    .raw = true,
                                    .least = RX_LEAST_NONE,
                                    .hash = vt_mix64(vt_hash_seed() + 1)};
    s->node[RX_EMPTY] = (rx_node){.kind = RX_KIND_EMPTY,
                                  .nullable = true,
                                  .plain = true,
                                  .text = true,
                                  .raw = true,
                                  .hash = vt_mix64(vt_hash_seed() + 2)};
    s->node[RX_ALL] = (rx_node){.kind = RX_KIND_NOT,
                                .a = RX_NOTHING,
                                .nullable = true,
                                .plain = true,
                                .hash = vt_mix64(vt_hash_seed() + 3)};
    s->n = 3;
    return true;
}

void rx_store_release(rx_store *s)
{
    free(s->node);
    free(s->slot);
    free(s->memo_key);
    free(s->memo);
    *s = (rx_store){0};
}

static size_t data_bytes(const rx_node *n)
{
    switch (n->kind) {
    case RX_KIND_SET:
        return 4 * sizeof(uint64_t);
    case RX_KIND_STRING:
        return (size_t)n->n;
    case RX_KIND_ALT:
    case RX_KIND_AND:
        return (size_t)n->n * sizeof(rx);
    default:
        return 0;
    }
}

static bool same(const rx_node *x, const rx_node *y)
{
    size_t bytes = data_bytes(x);
    return x->hash == y->hash && x->kind == y->kind && x->a == y->a && x->b == y->b &&
           x->min == y->min && x->max == y->max && x->n == y->n &&
           (bytes > 0 ? memcmp(x->data, y->data, bytes) == 0
                      : x->kind != RX_KIND_TABLE || x->data == y->data);
}

/* A hash of the structure: children count by their own hash, so that it does not depend on the
 * order in which a store came to know them. */
static uint64_t hash_of(const rx_store *s, const rx_node *n)
{
    uint64_t h = vt_mix64(vt_hash_seed() + 16 + n->kind) ^
                 vt_mix64((uint64_t)(uint32_t)n->min << 32 | (uint32_t)n->max);
    const rx *kid = n->data;
    switch (n->kind) {
    case RX_KIND_SET:
        return vt_mix64(h ^ vt_fnv1a(h, n->data, 32));
    case RX_KIND_STRING:
        return vt_mix64(h ^ vt_fnv1a(h, n->data, (size_t)n->n));
    case RX_KIND_ALT:
    case RX_KIND_AND:
        for (int32_t i = 0; i < n->n; i++)
            h += vt_mix64(s->node[kid[i]].hash ^ 0x51);
        return vt_mix64(h);
    case RX_KIND_CAT:
        return vt_mix64(h + vt_mix64(s->node[n->a].hash) * 3 + s->node[n->b].hash);
    case RX_KIND_TABLE:
        return vt_mix64(h + ((const rx_table *)n->data)->hash + (uint64_t)n->a);
    default:
        return vt_mix64(h + s->node[n->a].hash);
    }
}

static bool grow_slots(rx_store *s)
{
    int32_t n = s->n_slots * 2;
    int32_t *slot = vt_calloc((size_t)n, sizeof *slot);
    if (!slot)
        return false;
    for (int32_t i = 3; i < s->n; i++) {
        uint32_t at = (uint32_t)s->node[i].hash & (uint32_t)(n - 1);
        while (slot[at])
            at = (at + 1) & (uint32_t)(n - 1);
        slot[at] = i;
    }
    free(s->slot);
    s->slot = slot;
    s->n_slots = n;
    return true;
}

/* Returns the node that equals *n, made if there is none. Its data is copied. */
static rx intern(rx_store *s, rx_node *n)
{
    n->hash = hash_of(s, n);
    uint32_t at = (uint32_t)n->hash & (uint32_t)(s->n_slots - 1);
    for (; s->slot[at]; at = (at + 1) & (uint32_t)(s->n_slots - 1))
        if (same(&s->node[s->slot[at]], n))
            return s->slot[at];
    if (s->failed)
        return RX_NOTHING;
    if (s->n == s->cap) {
        rx_node *more = s->n < MAX_NODES ? realloc(s->node, 2 * (size_t)s->cap * sizeof *more)
                                         : NULL;
        if (!more)
            return fail(s, rx_no_memory);
        s->node = more;
        s->cap *= 2;
    }
    size_t bytes = data_bytes(n);
    if (bytes > 0) {
        void *copy = vt_arena_alloc(s->arena, 1, bytes);
        if (!copy)
            return fail(s, "it takes too much memory");
        memcpy(copy, n->data, bytes);
        n->data = copy;
    }
    s->node[s->n] = *n;
    s->slot[at] = s->n++;
    rx made = s->n - 1;
    if (s->n * 2 > s->n_slots && !grow_slots(s))
        return fail(s, rx_no_memory);
    return made;
}

rx rx_set(rx_store *s, const uint64_t bits[4])
{
    int n = 0, last = 0;
    for (int i = 0; i < 4; i++) {
        n += __builtin_popcountll(bits[i]);
        last = bits[i] ? 64 * i + 63 - __builtin_clzll(bits[i]) : last;
    }
    unsigned char byte = (unsigned char)last;
    if (n == 0)
        return RX_NOTHING;
    if (n == 1)
        return rx_string(s, &byte, 1);
    /* printable ASCII but for the quote and the backslash */
    static const uint64_t graphic[4] = {UINT64_C(0xfffffffb00000000), UINT64_C(0x7fffffffefffffff)};
    bool text = !(bits[0] & ~graphic[0]) && !(bits[1] & ~graphic[1]) && !bits[2] && !bits[3];
    rx_node node = {.kind = RX_KIND_SET,
                    .data = bits,
                    .plain = true,
                    .text = text,
                    .raw = text,
                    .character = text,
                    .least = 1};
    return intern(s, &node);
}

rx rx_never(rx_store *s)
{
    static const uint64_t none[4];
    rx_node node = {.kind = RX_KIND_SET, .data = none, .plain = true, .least = 1};
    return intern(s, &node);
}

rx rx_byte_range(rx_store *s, int from, int to)
{
    uint64_t bits[4] = {0};
    for (int b = from; b <= to; b++)
        bits[b >> 6] |= UINT64_C(1) << (b & 63);
    return rx_set(s, bits);
}

/* Returns true if every character stands for itself in a JSON string, and is whole. */
static bool is_text(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] < 0x20 || bytes[i] == '"' || bytes[i] == '\\')
            return false;
    return vt_utf8_valid(bytes, n) == n;
}

rx rx_string(rx_store *s, const void *bytes, size_t n)
{
    if (n == 0)
        return RX_EMPTY;
    if (n > 1 << 20)
        return fail(s, "a text in it is longer than 1 MiB");
    rx_node node = {.kind = RX_KIND_STRING,
                    .data = bytes,
                    .n = (int32_t)n,
                    .plain = true,
                    .text = is_text(bytes, n),
                    .raw = vt_utf8_valid(bytes, n) == n,
                    .least = (int32_t)n};
    node.character = node.text && n == 1;
    return intern(s, &node);
}

static int32_t add_least(int32_t a, int32_t b)
{
    if (a == RX_LEAST_NONE || b == RX_LEAST_NONE)
        return RX_LEAST_NONE;
    if (a < 0 || b < 0)
        return RX_LEAST_UNKNOWN;
    return a + b < RX_MAX_REPEAT * 16 ? a + b : RX_MAX_REPEAT * 16;
}

static rx cat_strings(rx_store *s, rx a, rx b)
{
    const rx_node *x = rx_at(s, a), *y = rx_at(s, b);
    size_t n = (size_t)x->n + (size_t)y->n;
    char *bytes = malloc(n);
    if (!bytes)
        return fail(s, rx_no_memory);
    memcpy(bytes, x->data, (size_t)x->n);
    memcpy(bytes + x->n, y->data, (size_t)y->n);
    rx made = rx_string(s, bytes, n);
    free(bytes);
    return made;
}

rx rx_cat(rx_store *s, rx a, rx b)
{
    if (a == RX_NOTHING || b == RX_NOTHING)
        return RX_NOTHING;
    if (a == RX_EMPTY)
        return b;
    if (b == RX_EMPTY)
        return a;
    rx_node x = *rx_at(s, a), y = *rx_at(s, b);
    if (x.kind == RX_KIND_CAT) {
        if (++s->depth > 2000)
            return s->depth--, fail(s, "it is nested too deeply");
        rx made = rx_cat(s, x.a, rx_cat(s, x.b, b));
        s->depth--;
        return made;
    }
    if (x.kind == RX_KIND_STRING && y.kind == RX_KIND_STRING)
        return cat_strings(s, a, b);
    if (x.kind == RX_KIND_STRING && y.kind == RX_KIND_CAT &&
        rx_at(s, y.a)->kind == RX_KIND_STRING && !x.character)
        return rx_cat(s, cat_strings(s, a, y.a), y.b);
    if (a == b && ((s->any && a == s->any) || (s->raw && a == s->raw)))
        return a;
    rx_node node = {.kind = RX_KIND_CAT,
                    .a = a,
                    .b = b,
                    .nullable = x.nullable && y.nullable,
                    .plain = x.plain && y.plain,
                    .text = x.text && y.text,
                    .raw = x.raw && y.raw,
                    .least = add_least(x.least, y.least)};
    return intern(s, &node);
}

/* ---- unions and intersections ---- */

typedef struct list {
    rx *at;
    int32_t n, cap;
    bool failed;
} list;

static void push(list *l, rx a)
{
    if (l->n == l->cap) {
        int32_t cap = l->cap ? 2 * l->cap : 16;
        rx *more = realloc(l->at, (size_t)cap * sizeof *more);
        if (!more) {
            l->failed = true;
            return;
        }
        l->at = more;
        l->cap = cap;
    }
    l->at[l->n++] = a;
}

static int by_number(const void *a, const void *b)
{
    return *(const rx *)a < *(const rx *)b ? -1 : *(const rx *)a > *(const rx *)b;
}

static void sort_unique(list *l)
{
    int32_t n = 0;
    if (l->n > 1)
        qsort(l->at, (size_t)l->n, sizeof *l->at, by_number);
    for (int32_t i = 0; i < l->n; i++)
        if (n == 0 || l->at[i] != l->at[n - 1])
            l->at[n++] = l->at[i];
    l->n = n;
}

static void flatten(const rx_store *s, rx_kind kind, const rx *kid, int32_t n, list *l)
{
    for (int32_t i = 0; i < n; i++) {
        const rx_node *k = rx_at(s, kid[i]);
        const rx *inner = k->data;
        if (k->kind != kind)
            push(l, kid[i]);
        for (int32_t j = 0; k->kind == kind && j < k->n; j++)
            push(l, inner[j]);
    }
}

/* Orders the members of a union by what they begin with. */
static int by_head(const void *a, const void *b)
{
    const rx *x = a, *y = b;
    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* ab|ac becomes a(b|c). */
static void share_heads(rx_store *s, list *l)
{
    int32_t n_cat = 0, out = 0;
    for (int32_t i = 0; i < l->n; i++)
        n_cat += rx_at(s, l->at[i])->kind == RX_KIND_CAT;
    if (n_cat < 2)
        return;
    rx(*pair)[2] = vt_calloc((size_t)l->n, sizeof *pair);
    rx *tail = vt_calloc((size_t)l->n, sizeof *tail);
    if (!pair || !tail) {
        l->failed = true;
        l->n = 0;
    }
    for (int32_t i = 0; i < l->n; i++) {
        const rx_node *k = rx_at(s, l->at[i]);
        bool cat = k->kind == RX_KIND_CAT;
        pair[i][0] = cat ? k->a : l->at[i];
        pair[i][1] = cat ? k->b : -1;
    }
    if (l->n > 1)
        qsort(pair, (size_t)l->n, sizeof *pair, by_head);
    for (int32_t i = 0, j; i < l->n; i = j) {
        int32_t n = 0;
        for (j = i; j < l->n && pair[j][0] == pair[i][0]; j++)
            tail[n++] = pair[j][1] < 0 ? RX_EMPTY : pair[j][1];
        rx rest = n == 1 ? tail[0] : rx_alt(s, tail, n);
        l->at[out++] = rx_cat(s, pair[i][0], rest);
    }
    l->n = out;
    free(pair);
    free(tail);
    sort_unique(l);
}

static bool is_byte_set(const rx_node *k)
{
    return k->kind == RX_KIND_SET || (k->kind == RX_KIND_STRING && k->n == 1);
}

/* Sets of bytes and strings of one byte become one set. */
static void merge_sets(rx_store *s, list *l)
{
    uint64_t bits[4] = {0};
    int32_t out = 0, n = 0;
    for (int32_t i = 0; i < l->n; i++)
        n += is_byte_set(rx_at(s, l->at[i]));
    if (n < 2)
        return;
    for (int32_t i = 0; i < l->n; i++) {
        const rx_node *k = rx_at(s, l->at[i]);
        const uint64_t *set = k->data;
        unsigned char byte = *(const unsigned char *)(k->data ? k->data : "");
        if (!is_byte_set(k))
            l->at[out++] = l->at[i];
        else if (k->kind == RX_KIND_STRING)
            bits[byte >> 6] |= UINT64_C(1) << (byte & 63);
        for (int w = 0; k->kind == RX_KIND_SET && w < 4; w++)
            bits[w] |= set[w];
    }
    l->n = out;
    push(l, rx_set(s, bits));
    sort_unique(l);
}

/* Returns true if each is a string of `any`, or of `raw`. */
static bool all_are(const rx_store *s, const list *l, rx any)
{
    for (int32_t i = 0; i < l->n; i++) {
        const rx_node *k = rx_at(s, l->at[i]);
        if (!(any == s->any ? k->text : k->raw))
            return false;
    }
    return true;
}

static bool holds(const list *l, rx a)
{
    for (int32_t i = 0; i < l->n; i++)
        if (l->at[i] == a)
            return true;
    return false;
}

static void drop(list *l, rx a)
{
    int32_t n = 0;
    for (int32_t i = 0; i < l->n; i++)
        if (l->at[i] != a)
            l->at[n++] = l->at[i];
    l->n = n;
}

/* Makes the union or the intersection of a list that the laws have been through. */
static rx make_list(rx_store *s, rx_kind kind, const list *l)
{
    bool alt = kind == RX_KIND_ALT;
    if (l->n == 1)
        return l->at[0];
    rx_node node = {.kind = (uint8_t)kind,
                    .data = l->at,
                    .n = l->n,
                    .plain = alt,
                    .text = alt,
                    .raw = alt,
                    .nullable = !alt,
                    .least = alt ? RX_LEAST_NONE : RX_LEAST_UNKNOWN};
    for (int32_t i = 0; i < l->n; i++) {
        const rx_node *k = rx_at(s, l->at[i]);
        if (!alt) {
            node.nullable &= k->nullable;
            node.text |= k->text;
            node.raw |= k->raw;
            continue;
        }
        node.nullable |= k->nullable;
        node.plain &= k->plain;
        node.text &= k->text;
        node.raw &= k->raw;
        if (k->least == RX_LEAST_UNKNOWN || node.least == RX_LEAST_UNKNOWN)
            node.least = RX_LEAST_UNKNOWN;
        else if (k->least >= 0 && (node.least < 0 || k->least < node.least))
            node.least = k->least;
    }
    if (node.nullable)
        node.least = 0;
    return intern(s, &node);
}

rx rx_alt(rx_store *s, const rx *kid, int32_t n)
{
    list l = {0};
    rx made = RX_NOTHING;
    flatten(s, RX_KIND_ALT, kid, n, &l);
    (void)rx_spend(s, l.n / 4);
    drop(&l, RX_NOTHING);
    sort_unique(&l);
    if (holds(&l, RX_ALL)) {
        made = RX_ALL;
    } else if (s->any && holds(&l, s->any) && all_are(s, &l, s->any)) {
        made = s->any;
    } else if (s->raw && holds(&l, s->raw) && all_are(s, &l, s->raw)) {
        made = s->raw;
    } else if (l.n > 0) {
        if (l.n > 1)
            merge_sets(s, &l);
        if (l.n > 1 && s->depth < 400) {
            s->depth++;
            share_heads(s, &l);
            s->depth--;
        }
        made = l.n > 0 ? make_list(s, RX_KIND_ALT, &l) : RX_NOTHING;
    }
    if (l.failed)
        fail(s, rx_no_memory);
    free(l.at);
    return made;
}

rx rx_alt2(rx_store *s, rx a, rx b)
{
    rx kid[2] = {a, b};
    return rx_alt(s, kid, 2);
}

rx rx_and(rx_store *s, const rx *kid, int32_t n)
{
    list l = {0};
    rx made = RX_ALL;
    flatten(s, RX_KIND_AND, kid, n, &l);
    (void)rx_spend(s, l.n / 4);
    drop(&l, RX_ALL);
    sort_unique(&l);
    bool empty = holds(&l, RX_EMPTY), nullable = true, text = false, raw = false;
    for (int32_t i = 0; i < l.n; i++) {
        nullable &= rx_at(s, l.at[i])->nullable;
        text |= l.at[i] != s->any && rx_at(s, l.at[i])->text;
        raw |= l.at[i] != s->raw && rx_at(s, l.at[i])->raw;
    }
    if (s->any && text)
        drop(&l, s->any);
    if (s->raw && raw)
        drop(&l, s->raw);
    if (holds(&l, RX_NOTHING))
        made = RX_NOTHING;
    else if (empty)
        made = nullable ? RX_EMPTY : RX_NOTHING;
    else if (l.n > 0)
        made = make_list(s, RX_KIND_AND, &l);
    if (l.failed)
        fail(s, rx_no_memory);
    free(l.at);
    return made;
}

rx rx_and2(rx_store *s, rx a, rx b)
{
    rx kid[2] = {a, b};
    return rx_and(s, kid, 2);
}

rx rx_not(rx_store *s, rx a)
{
    const rx_node *x = rx_at(s, a);
    if (a == RX_NOTHING)
        return RX_ALL;
    if (a == RX_ALL)
        return RX_NOTHING;
    if (x->kind == RX_KIND_NOT)
        return x->a;
    rx_node node = {.kind = RX_KIND_NOT,
                    .a = a,
                    .nullable = !x->nullable,
                    .least = x->nullable ? RX_LEAST_UNKNOWN : 0};
    return intern(s, &node);
}

rx rx_repeat(rx_store *s, rx a, int32_t min, int32_t max)
{
    rx_node x = *rx_at(s, a);
    if (max == 0 || a == RX_EMPTY)
        return RX_EMPTY;
    if (a == RX_NOTHING)
        return min == 0 ? RX_EMPTY : RX_NOTHING;
    if (min == 1 && max == 1)
        return a;
    if (x.nullable)
        min = 0;
    if (x.kind == RX_KIND_REPEAT && x.min == 0 && x.max == RX_NO_MOST)
        return a;
    int64_t least = x.least < 0 ? x.least : (int64_t)x.least * min;
    if (least > RX_MAX_REPEAT * 16)
        least = RX_MAX_REPEAT * 16;
    rx_node node = {.kind = RX_KIND_REPEAT,
                    .a = a,
                    .min = min,
                    .max = max,
                    .plain = x.plain,
                    .text = x.text,
                    .raw = x.raw,
                    .nullable = min == 0 || x.nullable,
                    .least = min == 0 ? 0 : (int32_t)least};
    return intern(s, &node);
}

rx rx_close(rx_store *s, rx a)
{
    rx_node x = *rx_at(s, a);
    if (a == RX_NOTHING)
        return RX_NOTHING;
    if (a == RX_EMPTY)
        return rx_string(s, "\"", 1);
    rx_node node = {
        .kind = RX_KIND_CLOSE, .a = a, .plain = x.plain, .least = add_least(x.least, 1)};
    return intern(s, &node);
}

rx rx_table_state(rx_store *s, const rx_table *t, int32_t state)
{
    if (state < 0)
        return RX_NOTHING;
    rx_node node = {.kind = RX_KIND_TABLE,
                    .a = state,
                    .data = t,
                    .plain = true,
                    .nullable = t->least[state] == 0,
                    .least = t->least[state]};
    return intern(s, &node);
}

void rx_mark_character(rx_store *s, rx a, bool text, bool raw)
{
    if (a <= RX_ALL)
        return;
    s->node[a].character = true;
    s->node[a].text = text;
    s->node[a].raw = raw;
}
