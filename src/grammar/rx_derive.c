/* Derivatives, classes of bytes, and the search for a shortest string: see rx.h. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "grammar/rx.h"

enum { MAX_DEPTH = 2000, MAX_SEARCH = 30000, MAX_PARTS = 100000 };

/* ---- derivatives ---- */

static bool grow_memo(rx_store *s)
{
    int32_t n = s->memo_slots ? 2 * s->memo_slots : 1024;
    uint64_t *key = vt_calloc((size_t)n, sizeof *key);
    int32_t *value = vt_calloc((size_t)n, sizeof *value);
    if (!key || !value) {
        free(key);
        free(value);
        return false;
    }
    for (int32_t i = 0; i < s->memo_slots; i++) {
        if (!s->memo_key[i])
            continue;
        uint32_t at = (uint32_t)vt_mix64(s->memo_key[i]) & (uint32_t)(n - 1);
        while (key[at])
            at = (at + 1) & (uint32_t)(n - 1);
        key[at] = s->memo_key[i];
        value[at] = s->memo[i];
    }
    free(s->memo_key);
    free(s->memo);
    s->memo_key = key;
    s->memo = value;
    s->memo_slots = n;
    return true;
}

/* Half of the table is free, or it grows. */
static bool has_memo_room(rx_store *s)
{
    if (s->n_memo * 2 < s->memo_slots || grow_memo(s))
        return true;
    s->failed = s->failed ? s->failed : rx_no_memory;
    return false;
}

static uint32_t memo_at(const rx_store *s, uint64_t key)
{
    uint32_t at = (uint32_t)vt_mix64(key) & (uint32_t)(s->memo_slots - 1);
    while (s->memo_key[at] && s->memo_key[at] != key)
        at = (at + 1) & (uint32_t)(s->memo_slots - 1);
    return at;
}

static rx derive_list(rx_store *s, const rx_node *x, int byte)
{
    rx few[64];
    rx *kid = x->n <= 64 ? few : vt_calloc((size_t)x->n, sizeof *kid);
    if (!kid) {
        s->failed = s->failed ? s->failed : rx_no_memory;
        return RX_NOTHING;
    }
    const rx *from = x->data;
    int32_t n = 0;
    for (int32_t i = 0; i < x->n; i++) {
        rx d = rx_derive(s, from[i], byte);
        if (d != RX_NOTHING || x->kind == RX_KIND_AND)
            kid[n++] = d;
        if (d == RX_NOTHING && x->kind == RX_KIND_AND)
            break;
    }
    rx made = x->kind == RX_KIND_ALT ? rx_alt(s, kid, n) : rx_and(s, kid, n);
    if (kid != few)
        free(kid);
    return made;
}

static rx derive(rx_store *s, const rx_node *x, int byte)
{
    rx first;
    switch (x->kind) {
    case RX_KIND_CAT:
        first = rx_cat(s, rx_derive(s, x->a, byte), x->b);
        return rx_at(s, x->a)->nullable ? rx_alt2(s, first, rx_derive(s, x->b, byte)) : first;
    case RX_KIND_ALT:
    case RX_KIND_AND:
        return derive_list(s, x, byte);
    case RX_KIND_NOT:
        return rx_not(s, rx_derive(s, x->a, byte));
    case RX_KIND_REPEAT:
        first = rx_derive(s, x->a, byte);
        if (first == RX_NOTHING)
            return first;
        return rx_cat(s, first,
                      rx_repeat(s, x->a, x->min > 0 ? x->min - 1 : 0,
                                x->max == RX_NO_MOST ? x->max : x->max - 1));
    default: /* RX_KIND_CLOSE */
        if (byte == '"' && rx_at(s, x->a)->nullable)
            return RX_EMPTY;
        return rx_close(s, rx_derive(s, x->a, byte));
    }
}

rx rx_derive(rx_store *s, rx a, int byte)
{
    if (s->failed)
        return RX_NOTHING;
    rx_node x = *rx_at(s, a);
    const uint64_t *set = x.data;
    const unsigned char *text = x.data;
    const rx_table *t = x.data;
    switch (x.kind) {
    case RX_KIND_NOTHING:
    case RX_KIND_EMPTY:
        return RX_NOTHING;
    case RX_KIND_SET:
        return set[byte >> 6] >> (byte & 63) & 1 ? RX_EMPTY : RX_NOTHING;
    case RX_KIND_STRING:
        return text[0] == byte ? rx_string(s, text + 1, (size_t)x.n - 1) : RX_NOTHING;
    case RX_KIND_TABLE:
        return t->symbol[byte] == 255
                   ? RX_NOTHING
                   : rx_table_state(s, t, t->next[x.a * t->n_symbols + t->symbol[byte]]);
    default:
        break;
    }
    if (!has_memo_room(s))
        return RX_NOTHING;
    uint64_t key = (uint64_t)(uint32_t)a << 8 | (uint64_t)byte | UINT64_C(1) << 60;
    uint32_t at = memo_at(s, key);
    if (s->memo_key[at])
        return s->memo[at];
    if (s->depth > MAX_DEPTH)
        s->failed = "it has too many states";
    if (s->failed || !rx_spend(s, 1))
        return RX_NOTHING;
    s->depth++;
    rx made = derive(s, &x, byte);
    s->depth--;
    /* the calls below have filled the table, perhaps in another place */
    if (s->failed || !has_memo_room(s))
        return RX_NOTHING;
    at = memo_at(s, key);
    if (!s->memo_key[at]) {
        s->memo_key[at] = key;
        s->memo[at] = made;
        s->n_memo++;
    }
    return made;
}

/* ---- classes of bytes ---- */

void rx_classes_begin(rx_classes *c)
{
    memset(c, 0, sizeof *c);
    c->n = 1;
    c->size[0] = 256;
}

static void isolate(rx_classes *c, int byte)
{
    if (c->size[c->of[byte]] == 1)
        return;
    c->size[c->of[byte]]--;
    c->of[byte] = (uint8_t)c->n;
    c->size[c->n++] = 1;
}

/* Splits each class into its bytes inside the set and those outside. */
static void split(rx_classes *c, const uint64_t set[4])
{
    int32_t in[256], to[256], n = c->n;
    memset(in, 0, (size_t)n * sizeof *in);
    for (int w = 0; w < 4; w++)
        for (uint64_t left = set[w]; left; left &= left - 1)
            in[c->of[64 * w + __builtin_ctzll(left)]]++;
    for (int32_t i = 0; i < n; i++) {
        to[i] = i;
        if (in[i] > 0 && in[i] < c->size[i]) {
            to[i] = c->n++;
            c->size[to[i]] = in[i];
            c->size[i] -= in[i];
        }
    }
    for (int w = 0; c->n > n && w < 4; w++)
        for (uint64_t left = set[w]; left; left &= left - 1) {
            uint8_t *of = &c->of[64 * w + __builtin_ctzll(left)];
            *of = (uint8_t)to[*of];
        }
}

static void split_table(rx_classes *c, const rx_table *t)
{
    for (int b = 0; b < 256; b++)
        if (t->symbol[b] != 255)
            isolate(c, b);
}

/* `left`: parts that may still be looked at; one that stands in several places counts each time. */
static void classes_add(const rx_store *s, rx a, rx_classes *c, int depth, int32_t *left)
{
    const rx_node *x = rx_at(s, a);
    const rx *kid = x->data;
    if (c->n == 256)
        return;
    if (depth > MAX_DEPTH || --*left < 0) { /* every byte for itself is always right */
        for (int b = 0; b < 256; b++)
            isolate(c, b);
        return;
    }
    switch (x->kind) {
    case RX_KIND_SET:
        split(c, x->data);
        break;
    case RX_KIND_STRING:
        isolate(c, *(const unsigned char *)x->data);
        break;
    case RX_KIND_CAT:
        classes_add(s, x->a, c, depth + 1, left);
        if (rx_at(s, x->a)->nullable)
            classes_add(s, x->b, c, depth + 1, left);
        break;
    case RX_KIND_ALT:
    case RX_KIND_AND:
        for (int32_t i = 0; i < x->n; i++)
            classes_add(s, kid[i], c, depth + 1, left);
        break;
    case RX_KIND_NOT:
    case RX_KIND_REPEAT:
        classes_add(s, x->a, c, depth + 1, left);
        break;
    case RX_KIND_CLOSE:
        isolate(c, '"');
        classes_add(s, x->a, c, depth + 1, left);
        break;
    case RX_KIND_TABLE:
        split_table(c, x->data);
        break;
    default:
        break;
    }
}

void rx_classes_add(const rx_store *s, rx a, rx_classes *c)
{
    int32_t left = MAX_PARTS;
    classes_add(s, a, c, 0, &left);
}

static bool first(const rx_store *s, rx a, uint64_t set[4], int depth, int32_t *left)
{
    const rx_node *x = rx_at(s, a);
    const rx *kid = x->data;
    const uint64_t *of = x->data;
    bool told = depth < MAX_DEPTH && --*left >= 0;
    switch (x->kind) {
    case RX_KIND_NOTHING:
    case RX_KIND_EMPTY:
        return told;
    case RX_KIND_SET:
        for (int i = 0; i < 4; i++)
            set[i] |= of[i];
        return told;
    case RX_KIND_STRING: {
        int byte = *(const unsigned char *)x->data;
        set[byte >> 6] |= UINT64_C(1) << (byte & 63);
        return told;
    }
    case RX_KIND_CLOSE:
        set['"' >> 6] |= UINT64_C(1) << ('"' & 63);
        return told && first(s, x->a, set, depth + 1, left);
    case RX_KIND_CAT:
        return told && first(s, x->a, set, depth + 1, left) &&
               (!rx_at(s, x->a)->nullable || first(s, x->b, set, depth + 1, left));
    case RX_KIND_ALT:
        for (int32_t i = 0; told && i < x->n; i++)
            told = first(s, kid[i], set, depth + 1, left);
        return told;
    case RX_KIND_AND: /* any part that tells is enough */
        for (int32_t i = 0; told && i < x->n; i++)
            if (rx_at(s, kid[i])->kind != RX_KIND_NOT)
                return first(s, kid[i], set, depth + 1, left);
        return false;
    case RX_KIND_REPEAT:
        return told && first(s, x->a, set, depth + 1, left);
    default:
        return false;
    }
}

bool rx_first(const rx_store *s, rx a, uint64_t set[4])
{
    int32_t left = MAX_PARTS;
    return first(s, a, set, 0, &left);
}

/* `left`: parts that may still be looked at. */
static bool bytes_of(const rx_store *s, rx a, uint64_t set[4], int32_t *left)
{
    const rx_node *x = rx_at(s, a);
    const rx *kid = x->data;
    const uint64_t *bits = x->data;
    const unsigned char *text = x->data;
    if (--*left < 0)
        return false;
    switch (x->kind) {
    case RX_KIND_NOTHING:
    case RX_KIND_EMPTY:
        return true;
    case RX_KIND_SET:
        for (int i = 0; i < 4; i++)
            set[i] |= bits[i];
        return true;
    case RX_KIND_STRING:
        for (int32_t i = 0; i < x->n; i++)
            set[text[i] >> 6] |= UINT64_C(1) << (text[i] & 63);
        return true;
    case RX_KIND_CAT:
        return bytes_of(s, x->a, set, left) && bytes_of(s, x->b, set, left);
    case RX_KIND_REPEAT:
        return bytes_of(s, x->a, set, left);
    case RX_KIND_CLOSE:
        set['"' >> 6] |= UINT64_C(1) << '"';
        return bytes_of(s, x->a, set, left);
    case RX_KIND_ALT:
        for (int32_t i = 0; i < x->n; i++)
            if (!bytes_of(s, kid[i], set, left))
                return false;
        return true;
    case RX_KIND_AND: /* of any one part that tells */
        for (int32_t i = 0; i < x->n; i++) {
            uint64_t one[4] = {0};
            if (!bytes_of(s, kid[i], one, left))
                continue;
            for (int k = 0; k < 4; k++)
                set[k] |= one[k];
            return true;
        }
        return false;
    default: /* RX_KIND_NOT, RX_KIND_TABLE */
        return false;
    }
}

bool rx_bytes(const rx_store *s, rx a, uint64_t set[4])
{
    int32_t left = 300;
    return bytes_of(s, a, set, &left);
}

/* ---- a shortest string ---- */

typedef struct search {
    rx *node;
    int32_t *from, n, cap;
    uint8_t *seen;
    int32_t n_seen;
} search;

static bool visit(search *q, rx a, int32_t from)
{
    if (a >= q->n_seen) {
        int32_t n = 2 * a + 64;
        uint8_t *more = realloc(q->seen, (size_t)n);
        if (!more)
            return false;
        memset(more + q->n_seen, 0, (size_t)(n - q->n_seen));
        q->seen = more;
        q->n_seen = n;
    }
    if (q->seen[a])
        return true;
    if (q->n == q->cap) {
        int32_t cap = q->cap ? 2 * q->cap : 64;
        rx *node = realloc(q->node, (size_t)cap * sizeof *node);
        q->node = node ? node : q->node;
        int32_t *back = node ? realloc(q->from, (size_t)cap * sizeof *back) : NULL;
        if (!back)
            return false;
        q->from = back;
        q->cap = cap;
    }
    q->seen[a] = 1;
    q->node[q->n] = a;
    q->from[q->n++] = from;
    return true;
}

/* Writes down how far it is from entry i, and from those that led to it. */
static void note_path(rx_store *s, const search *q, int32_t i, int32_t least)
{
    for (; i >= 0; i = q->from[i], least++)
        if (s->node[q->node[i]].least == RX_LEAST_UNKNOWN)
            s->node[q->node[i]].least = least;
}

/* Follows entry i's bytes. Returns true if a string's end is known from here on. */
static bool expand(rx_store *s, search *q, int32_t i, bool *ok)
{
    rx_classes c;
    rx_classes_begin(&c);
    rx_classes_add(s, q->node[i], &c);
    for (int32_t k = 0; k < c.n; k++) {
        int b = 0;
        while (c.of[b] != k)
            b++;
        rx to = rx_derive(s, q->node[i], b);
        const rx_node *t = rx_at(s, to);
        if (t->least == RX_LEAST_NONE)
            continue;
        if (t->nullable || t->least >= 0) {
            note_path(s, q, i, (t->nullable ? 0 : t->least) + 1);
            return true;
        }
        if (!visit(q, to, i)) {
            *ok = false;
            return false;
        }
    }
    return false;
}

/* The least of a sequence or a union, by those of its parts. */
static int32_t least_of_parts(rx_store *s, rx a)
{
    const rx_node x = *rx_at(s, a); /* a copy: new nodes move the others */
    const rx pair[2] = {x.a, x.b}, *kid = x.kind == RX_KIND_CAT ? pair : x.data;
    int32_t n = x.kind == RX_KIND_CAT ? 2 : x.n;
    int64_t sum = 0, best = -1;
    s->depth++;
    for (int32_t i = 0; i < n; i++) {
        int32_t least = rx_least(s, kid[i]);
        sum = least < 0 || sum < 0 ? -1 : sum + least;
        best = least >= 0 && (best < 0 || least < best) ? least : best;
    }
    s->depth--;
    int64_t made = x.kind == RX_KIND_CAT ? sum : best;
    made = made > RX_MAX_REPEAT * 16 ? RX_MAX_REPEAT * 16 : made;
    return s->failed || made < 0 ? RX_LEAST_NONE : (int32_t)made;
}

int32_t rx_least(rx_store *s, rx a)
{
    if (rx_at(s, a)->nullable)
        return 0;
    if (rx_at(s, a)->least != RX_LEAST_UNKNOWN)
        return rx_at(s, a)->least;
    if (s->depth < MAX_DEPTH &&
        (rx_at(s, a)->kind == RX_KIND_CAT || rx_at(s, a)->kind == RX_KIND_ALT)) {
        int32_t least = least_of_parts(s, a);
        if (!s->failed)
            s->node[a].least = least;
        return least;
    }
    search q = {0};
    bool ok = visit(&q, a, -1), found = false;
    for (int32_t i = 0; ok && !found && i < q.n && !s->failed; i++) {
        found = expand(s, &q, i, &ok);
        if (q.n > MAX_SEARCH)
            s->failed = s->failed ? s->failed : "it has too many states";
    }
    if (!ok)
        s->failed = s->failed ? s->failed : rx_no_memory;
    for (int32_t i = 0; !found && !s->failed && i < q.n; i++)
        s->node[q.node[i]].least = RX_LEAST_NONE;
    free(q.node);
    free(q.from);
    free(q.seen);
    return s->failed ? RX_LEAST_NONE : rx_at(s, a)->least;
}
