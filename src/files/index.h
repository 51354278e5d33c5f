/* Two things that the readers of both formats share: finding names by binary search, and checking
 * that byte ranges do not overlap. Both sort an array that the caller owns, in n log n, without
 * allocating. */
#ifndef VT_FILES_INDEX_H
#define VT_FILES_INDEX_H

#include <stddef.h>
#include <stdint.h>

typedef struct name_entry {
    const char *name; /* not NUL-terminated */
    size_t len;
    uint32_t at; /* index of the thing named */
} name_entry;

/* Sorts by name. Returns an entry that equals its predecessor, or NULL when all names differ. */
const name_entry *name_index_sort(name_entry *e, size_t n);
/* The `at` of the entry with this name; -1 if there is none. */
int64_t name_index_find(const name_entry *e, size_t n, const char *name, size_t len);

typedef struct byte_span {
    uint64_t begin, end; /* half-open */
    uint32_t at;
} byte_span;

/* Sorts by begin. Returns a span that begins before its predecessor ends, or NULL when none do. */
const byte_span *byte_span_sort(byte_span *s, size_t n);

#endif
