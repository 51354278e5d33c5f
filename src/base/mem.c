/* Memory: checked calloc, aligned and huge-page blocks, and the bump arena.
 *
 *   arena.head -> [block: next | cap | used | bytes ........ ] -> [block ...] -> NULL
 *
 * A new block is twice as large as the last one (from 64 KiB up to 4 MiB, or larger if an
 * allocation needs it). So an arena of n bytes costs O(log n) mallocs while it is small, and wastes
 * at most one block when it is large. Each allocation is zeroed when it is made: a block zeroed at
 * once would make one caller in many wait for megabytes. Only blocks that one large allocation has
 * to itself come from calloc, as fresh zero pages that cost nothing until they are touched. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void *vt_calloc(size_t n, size_t size) { return calloc(n ? n : 1, size ? size : 1); }

void *vt_aligned_alloc(size_t align, size_t size)
{
    void *p = NULL;
    if (size > SIZE_MAX - align)
        return NULL;
    return posix_memalign(&p, align, size ? size : align) == 0 ? p : NULL;
}

void *vt_pages_alloc(size_t size)
{
    void *p = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_HUGEPAGE); /* a hint: failure changes nothing */
    return p;
}

void vt_pages_free(void *p, size_t size)
{
    if (p)
        munmap(p, size ? size : 1);
}

/* Of the allocator that a sanitizer puts in malloc's place; without one the addresses are NULL. */
__attribute__((weak)) void __sanitizer_purge_allocator(void);
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void);
__attribute__((weak)) size_t __sanitizer_get_heap_size(void);

vt_malloc_use vt_malloc_look(void)
{
    if (__sanitizer_get_current_allocated_bytes && __sanitizer_get_heap_size) {
        size_t used = __sanitizer_get_current_allocated_bytes(), all = __sanitizer_get_heap_size();
        return (vt_malloc_use){.used = used, .free = all > used ? all - used : 0};
    }
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 m = mallinfo2();
    return (vt_malloc_use){.used = m.uordblks, .free = m.fordblks, .mapped = m.hblkhd};
#else
    return (vt_malloc_use){0};
#endif
}

void vt_malloc_trim(void)
{
    if (__sanitizer_purge_allocator) {
        __sanitizer_purge_allocator();
        return;
    }
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

enum {
    ARENA_FIRST_BLOCK = 4 << 10, /* many requests need no more, and there may be many of them */
    ARENA_MAX_BLOCK = 4 << 20,
    ARENA_PAGES_BLOCK = 8 << 20, /* several huge pages */
    ARENA_ALIGN = 16
};

typedef struct vt_arena_block {
    struct vt_arena_block *next;
    size_t cap, used;
    bool zeroed; /* when the block was made */
    _Alignas(ARENA_ALIGN) unsigned char bytes[];
} vt_arena_block;

void vt_arena_init(vt_arena *a, size_t limit) { *a = (vt_arena){.limit = limit}; }

void vt_arena_init_on_pages(vt_arena *a, size_t limit)
{
    *a = (vt_arena){.limit = limit, .on_pages = true};
}

static vt_arena_block *arena_grow(vt_arena *a, size_t need)
{
    size_t cap = a->head ? a->head->cap * 2 : ARENA_FIRST_BLOCK;
    if (cap > ARENA_MAX_BLOCK)
        cap = ARENA_MAX_BLOCK;
    if (a->on_pages)
        cap = ARENA_PAGES_BLOCK - sizeof(vt_arena_block);
    if (cap < need)
        cap = need;
    size_t total;
    if (!vt_add_size(sizeof(vt_arena_block), cap, &total))
        return NULL;
    bool zeroed = a->on_pages || cap > ARENA_MAX_BLOCK;
    vt_arena_block *b = a->on_pages ? vt_pages_alloc(total)
                        : zeroed    ? calloc(1, total)
                                    : malloc(total);
    if (!b)
        return NULL;
    b->cap = cap;
    b->zeroed = zeroed;
    b->used = 0;
    b->next = a->head;
    a->head = b;
    return b;
}

void *vt_arena_alloc(vt_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (!vt_mul_size(n, size, &bytes) || !vt_add_size(bytes, ARENA_ALIGN - 1, &bytes))
        return NULL;
    bytes &= ~(size_t)(ARENA_ALIGN - 1);
    if (bytes == 0)
        bytes = ARENA_ALIGN;
    if (a->limit && (bytes > a->limit || a->used > a->limit - bytes))
        return NULL;
    vt_arena_block *b = a->head;
    if (!b || b->cap - b->used < bytes) {
        b = arena_grow(a, bytes);
        if (!b)
            return NULL;
    }
    void *p = b->bytes + b->used;
    b->used += bytes;
    a->used += bytes;
    return b->zeroed ? p : memset(p, 0, bytes);
}

char *vt_arena_strdup(vt_arena *a, const char *s, size_t len)
{
    size_t bytes;
    if (!vt_add_size(len, 1, &bytes))
        return NULL;
    char *p = vt_arena_alloc(a, 1, bytes);
    if (p && len)
        memcpy(p, s, len); /* the arena is zeroed: the NUL is there */
    return p;
}

void vt_arena_release(vt_arena *a)
{
    if (!a)
        return;
    for (vt_arena_block *b = a->head; b;) {
        vt_arena_block *next = b->next;
        if (a->on_pages)
            vt_pages_free(b, sizeof *b + b->cap);
        else
            free(b);
        b = next;
    }
    *a = (vt_arena){.limit = a->limit, .on_pages = a->on_pages};
}
