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

/* One look at the keys tells where each pass puts them. */
static void radix_sort(keyed *a, keyed *b, int32_t n)
{
    int32_t at[8][256] = {{0}};
    for (int32_t i = 0; i < n; i++)
        for (int k = 0; k < 8; k++)
            at[k][a[i].key >> 8 * k & 255]++;
    for (int k = 0; k < 8; k++) {
        keyed *from = k % 2 ? b : a, *to = k % 2 ? a : b;
        for (int32_t c = 0, sum = 0; c < 256; c++) {
            int32_t here = at[k][c];
            at[k][c] = sum;
            sum += here;
        }
        for (int32_t i = 0; i < n; i++)
            to[at[k][from[i].key >> 8 * k & 255]++] = from[i];
    }
}

/* Sorts s, and leaves the keys in key[]. */
static bool sort(trie_string *s, uint64_t *key, int32_t n)
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
        radix_sort(a, b, n);
        for (int32_t i = 0, j; i < n; i = j) {
            for (j = i + 1; j < n && a[j].key == a[i].key; j++)
                ;
            if (j > i + 1)
                qsort(a + i, (size_t)(j - i), sizeof *a, compare);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        s[i] = a[i].s;
        key[i] = a[i].key;
    }
    if (b != a)
        free(b);
    free(a);
    return true;
}

/* ---- making ---- */

/* The bytes that string i has in common with the one before; mostly the keys tell. */
static int32_t common(const trie_string *s, const uint64_t *key, int32_t i)
{
    if (i == 0)
        return 0;
    const trie_string *a = &s[i - 1], *b = &s[i];
    int32_t most = a->len < b->len ? a->len : b->len;
    uint64_t differ = key[i - 1] ^ key[i];
    int32_t n = differ ? __builtin_clzll(differ) / 8 : 8;
    if (n >= most || n < 8)
        return n < most ? n : most;
    while (n < most && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Adds the nodes of string i, whose first `same` bytes are those of the string before. open[d] is
 * the last node of depth d + 1. */
static void add(trie *t, const trie_string *s, uint64_t key, int32_t same, int32_t *open,
                int32_t *n_open)
{
    for (; *n_open > same; --*n_open)
        t->node[open[*n_open - 1]].size = (uint32_t)(t->n - open[*n_open - 1]) & TRIE_NONE;
    for (int32_t d = same; d < s->len; d++) {
        unsigned char byte = d < 8 ? (unsigned char)(key >> (56 - 8 * d))
                                   : (unsigned char)s->bytes[d];
        open[d] = t->n;
        t->node[t->n++] = (trie_node){
            .entry = TRIE_NONE, .byte = byte, .depth = (uint32_t)(d + 1) & 255};
    }
    *n_open = s->len;
}

/* Makes room for all nodes: `same` gets what each string has in common with the one before. */
static bool make_room(trie *t, const trie_string *s, const uint64_t *key, int32_t n, uint8_t *same)
{
    int64_t nodes = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t shared = common(s, key, i);
        same[i] = (uint8_t)shared;
        nodes += s[i].len - shared;
    }
    t->node = nodes < TRIE_NONE ? vt_calloc((size_t)nodes + 1, sizeof *t->node) : NULL;
    t->id = vt_calloc((size_t)n + 1, sizeof *t->id);
    t->id_from = vt_calloc((size_t)n + 1, sizeof *t->id_from);
    return t->node && t->id && t->id_from;
}

static void fill(trie *t, const trie_string *s, const uint64_t *key, int32_t n, const uint8_t *same)
{
    int32_t open[TRIE_MAX_DEPTH + 1], n_open = 0;
    for (int32_t i = 0; i < n; i++) {
        bool fresh = i == 0 || same[i] != s[i].len || same[i] != s[i - 1].len;
        add(t, &s[i], key[i], same[i], open, &n_open);
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
}

bool trie_make(trie *t, trie_string *s, int32_t n)
{
    *t = (trie){.empty = -1};
    if (n > TRIE_MAX_STRINGS)
        return false;
    uint64_t *key = vt_calloc((size_t)n + 1, sizeof *key);
    uint8_t *same = vt_calloc((size_t)n + 1, 1);
    bool ok = key && same && sort(s, key, n) && make_room(t, s, key, n, same);
    if (ok)
        fill(t, s, key, n, same);
    else
        trie_release(t);
    free(key);
    free(same);
    return ok;
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
