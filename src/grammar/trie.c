#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- sorting: radix passes over the first 8 bytes, then ties by memcmp ---- */

typedef struct keyed {
    uint64_t key; /* the first 8 bytes, big-endian, padded with zeros */
    int32_t at;   /* in s[] */
} keyed;

/* TRIE_SLACK bytes can be read at any string. */
static uint64_t key_of(const trie_string *s)
{
    uint64_t key;
    memcpy(&key, s->bytes, sizeof key);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    key = __builtin_bswap64(key);
#endif
    return s->len >= 8 ? key : s->len <= 0 ? 0 : key & ~UINT64_C(0) << (64 - 8 * s->len);
}

static int compare(const void *a, const void *b)
{
    const trie_string *x = a, *y = b;
    int32_t n = x->len < y->len ? x->len : y->len;
    int c = n > 0 ? memcmp(x->bytes, y->bytes, (size_t)n) : 0;
    if (c == 0)
        c = x->len != y->len ? x->len - y->len : x->id - y->id;
    return c;
}

static void insertion_sort(keyed *a, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        keyed x = a[i];
        int32_t k = i;
        for (; k > 0 && a[k - 1].key > x.key; k--)
            a[k] = a[k - 1];
        a[k] = x;
    }
}

/* Returns the one of both arrays that is sorted at the end. Digits that all keys share, as the
 * zeros behind short strings, take no pass. */
static keyed *radix_sort(keyed *a, keyed *b, int32_t n)
{
    enum { MOST_BITS = 11 };
    const int bits = n > 4000 ? MOST_BITS : 8;
    const uint64_t digit = (UINT64_C(1) << bits) - 1;
    for (int shift = 0; shift < 64; shift += bits) {
        int32_t at[1 << MOST_BITS] = {0}, sum = 0;
        for (int32_t i = 0; i < n; i++)
            at[a[i].key >> shift & digit]++;
        if (at[a[0].key >> shift & digit] == n)
            continue;
        for (uint64_t c = 0; c <= digit; c++) {
            int32_t here = at[c];
            at[c] = sum;
            sum += here;
        }
        for (int32_t i = 0; i < n; i++)
            b[at[a[i].key >> shift & digit]++] = a[i];
        keyed *swap = a;
        a = b;
        b = swap;
    }
    return a;
}

/* Sorts s into to[], and leaves the keys in key[]. The scratch is written before it is read. */
static bool sort(const trie_string *s, trie_string *to, uint64_t *key, int32_t n)
{
    enum { FEW = 32 };
    keyed few[FEW], *a = n <= FEW ? few : malloc(2 * (size_t)n * sizeof *a), *sorted = a;
    if (!a)
        return false;
    for (int32_t i = 0; i < n; i++)
        a[i] = (keyed){key_of(&s[i]), i};
    if (n <= FEW)
        insertion_sort(a, n);
    else
        sorted = radix_sort(a, a + n, n);
    for (int32_t i = 0; i < n; i++) {
        to[i] = s[sorted[i].at];
        key[i] = sorted[i].key;
    }
    for (int32_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && key[j] == key[i]; j++)
            ;
        if (j > i + 1)
            qsort(to + i, (size_t)(j - i), sizeof *to, compare);
    }
    if (a != few)
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

bool trie_make(trie *t, const trie_string *s, int32_t n)
{
    *t = (trie){.empty = -1};
    if (n > TRIE_MAX_STRINGS)
        return false;
    trie_string *sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    uint64_t *key = malloc(((size_t)n + 1) * sizeof *key);
    uint8_t *same = malloc((size_t)n + 1);
    bool ok = sorted && key && same && sort(s, sorted, key, n) &&
              make_room(t, sorted, key, n, same);
    if (ok)
        fill(t, sorted, key, n, same);
    else
        trie_release(t);
    free(sorted);
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
