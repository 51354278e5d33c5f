/* Memory: checked size arithmetic, aligned blocks and a bump arena.
 *
 * Every size that comes from outside goes through vt_mul_size / vt_add_size. Allocators return NULL
 * on failure; callers turn that into VT_ERR_MEMORY. */
#ifndef VT_BASE_MEM_H
#define VT_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_CACHE_LINE 64

/* False on overflow; *out is untouched then. */
static inline bool vt_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool vt_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline size_t vt_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static inline int64_t vt_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void *vt_calloc(size_t n, size_t size);            /* zeroed, n * size checked */
void *vt_aligned_alloc(size_t align, size_t size); /* uninitialised; free with free() */

/* A large page-aligned block, zeroed when first touched; huge pages are asked for. */
void *vt_pages_alloc(size_t size);
void vt_pages_free(void *p, size_t size);

/* Bytes that malloc holds, of all threads; zeros where the C library does not tell. It walks
 * malloc's lists of free blocks under their locks: 5 ms and more where 200,000 blocks are free,
 * which a server does not come near. Call it rarely, and never in a step. */
typedef struct vt_malloc_use {
    size_t used, free; /* in its heaps: handed out; kept for later */
    size_t mapped;     /* large blocks, each mapped for itself */
} vt_malloc_use;
vt_malloc_use vt_malloc_look(void);
/* Gives the pages of malloc that are free back to the system, of all threads, and empties a
 * sanitizer's quarantine. Takes milliseconds, and as long again to touch the pages anew. */
void vt_malloc_trim(void);

/* Bump arena: everything allocated from it is freed together. Allocations are 16-byte aligned and
 * zeroed. */
typedef struct vt_arena {
    struct vt_arena_block *head;
    size_t used, limit; /* bytes handed out; allocation beyond `limit` fails (0: no limit) */
    bool on_pages;      /* blocks come from vt_pages_alloc */
} vt_arena;

void vt_arena_init(vt_arena *a, size_t limit);
/* The same, but its blocks are of huge pages, as the memory that a step works on is. For
 * benchmarks, whose data must lie as the engine's does. */
void vt_arena_init_on_pages(vt_arena *a, size_t limit);
void *vt_arena_alloc(vt_arena *a, size_t n, size_t size);
char *vt_arena_strdup(vt_arena *a, const char *s, size_t len); /* NUL-terminated copy */
void vt_arena_release(vt_arena *a);

#endif
