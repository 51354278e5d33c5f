/* Sorted names and sorted byte ranges. Among a model's 300 tensors a hash table would find a name
 * with one probe instead of about 9. But a model is loaded once, and a sorted array also shows
 * duplicates and needs no defence against names that are chosen to collide. */
#include "files/index.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int by_name(const void *pa, const void *pb)
{
    const name_entry *a = pa, *b = pb;
    return compare_names(a->name, a->len, b->name, b->len);
}

const name_entry *name_index_sort(name_entry *e, size_t n)
{
    if (n > 1)
        qsort(e, n, sizeof *e, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&e[i - 1], &e[i]) == 0)
            return &e[i];
    return NULL;
}

int64_t name_index_find(const name_entry *e, size_t n, const char *name, size_t len)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = compare_names(e[mid].name, e[mid].len, name, len);
        if (order == 0)
            return e[mid].at;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

static int by_begin(const void *pa, const void *pb)
{
    const byte_span *a = pa, *b = pb;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

const byte_span *byte_span_sort(byte_span *s, size_t n)
{
    if (n > 1)
        qsort(s, n, sizeof *s, by_begin);
    for (size_t i = 1; i < n; i++)
        if (s[i].begin < s[i - 1].end)
            return &s[i];
    return NULL;
}
