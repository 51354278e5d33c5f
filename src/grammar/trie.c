#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- sorting: radix passes over the first 8 bytes, then ties by memcmp ---- */

typedef struct keyed {
    uint64_t key; /* the first 8 bytes, big-endian, padded with zeros */
    trie_string s;
} keyed;

static uint64_t key_of(const trie_string *s)
{
    uint64_t key = 0;
    for (int32_t i = 0; i < 8; i++)
        key = key << 8 | (i < s->len ? (unsigned char)s->bytes[i] : 0);
    return key;
}

static int compare(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    int32_t n = x->s.len < y->s.len ? x->s.len : y->s.len;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    int c = n > 0 ? memcmp(x->s.bytes, y->s.bytes, (size_t)n) : 0;
    if (c == 0)
        c = x->s.len != y->s.len ? x->s.len - y->s.len : x->s.id - y->s.id;
    return c;
}

static void radix_pass(const keyed *from, keyed *to, int32_t n, int shift)
{
    int32_t at[257] = {0};
    for (int32_t i = 0; i < n; i++)
        at[(from[i].key >> shift & 255) + 1]++;
    for (int i = 0; i < 256; i++)
        at[i + 1] += at[i];
    for (int32_t i = 0; i < n; i++)
        to[at[from[i].key >> shift & 255]++] = from[i];
}

static bool sort(trie_string *s, int32_t n)
{
    keyed *a = vt_calloc((size_t)n + 1, sizeof *a);
    keyed *b = n > 2000 ? vt_calloc((size_t)n + 1, sizeof *b) : a;
    if (!a || !b) {
        free(a);
        return false;
    }
    for (int32_t i = 0; i < n; i++)
        a[i] = (keyed){key_of(&s[i]), s[i]};
    if (b == a) {
        qsort(a, (size_t)n, sizeof *a, compare);
    } else {
        for (int shift = 0; shift < 64; shift += 16) {
            radix_pass(a, b, n, shift);
            radix_pass(b, a, n, shift + 8);
        }
        for (int32_t i = 0, j; i < n; i = j) {
            for (j = i + 1; j < n && a[j].key == a[i].key; j++)
                ;
            if (j > i + 1)
                qsort(a + i, (size_t)(j - i), sizeof *a, compare);
        }
    }
    for (int32_t i = 0; i < n; i++)
        s[i] = a[i].s;
    if (b != a)
        free(b);
    free(a);
    return true;
}

/* ---- making ---- */

static int32_t common(const trie_string *a, const trie_string *b)
{
    int32_t n = 0, most = a->len < b->len ? a->len : b->len;
    while (n < most && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

static int32_t count_nodes(const trie_string *s, int32_t n)
{
    int64_t nodes = 0;
    for (int32_t i = 0; i < n; i++)
        nodes += s[i].len - (i > 0 ? common(&s[i - 1], &s[i]) : 0);
    return nodes < TRIE_NONE ? (int32_t)nodes : -1;
}

/* Adds the nodes of string i, whose first `same` bytes are those of the string before. open[d] is
 * the last node of depth d + 1. */
static void add(trie *t, const trie_string *s, int32_t same, int32_t *open, int32_t *n_open)
{
    for (; *n_open > same; --*n_open)
        t->node[open[*n_open - 1]].size = (uint32_t)(t->n - open[*n_open - 1]) & TRIE_NONE;
    for (int32_t d = same; d < s->len; d++) {
        open[d] = t->n;
        t->node[t->n++] = (trie_node){.entry = TRIE_NONE,
                                      .byte = (unsigned char)s->bytes[d],
                                      .depth = (uint32_t)(d + 1) & 255};
    }
    *n_open = s->len;
}

bool trie_make(trie *t, trie_string *s, int32_t n)
{
    *t = (trie){.empty = -1};
    int32_t open[TRIE_MAX_DEPTH + 1], n_open = 0;
    if (n > TRIE_MAX_STRINGS || !sort(s, n))
        return false;
    int32_t nodes = count_nodes(s, n);
    t->node = nodes >= 0 ? vt_calloc((size_t)nodes + 1, sizeof *t->node) : NULL;
    t->id = vt_calloc((size_t)n + 1, sizeof *t->id);
    t->id_from = vt_calloc((size_t)n + 1, sizeof *t->id_from);
    if (!t->node || !t->id || !t->id_from) {
        trie_release(t);
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t same = i > 0 ? common(&s[i - 1], &s[i]) : 0;
        bool fresh = i == 0 || same != s[i].len || same != s[i - 1].len;
        add(t, &s[i], same, open, &n_open);
        if (fresh) {
            t->id_from[t->n_entries] = i;
            if (s[i].len == 0)
                t->empty = t->n_entries;
            else
                t->node[open[s[i].len - 1]].entry = (uint32_t)t->n_entries & TRIE_NONE;
            t->n_entries++;
        }
        t->id[i] = s[i].id;
    }
    t->id_from[t->n_entries] = n;
    for (; n_open > 0; n_open--)
        t->node[open[n_open - 1]].size = (uint32_t)(t->n - open[n_open - 1]) & TRIE_NONE;
    return true;
}

void trie_release(trie *t)
{
    free(t->node);
    free(t->id);
    free(t->id_from);
    *t = (trie){0};
}

size_t trie_bytes(const trie *t)
{
    return (size_t)t->n * sizeof *t->node + (size_t)(t->n_entries + 1) * 8;
}
