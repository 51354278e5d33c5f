/* Page pool: which KV page belongs to whom. The bytes are elsewhere (kv/cache.h, or a device).
 *
 *   free              held                        cached
 *   on the stack      refs > 0 sequences use it   refs == 0, kept by the radix tree
 *
 * Always true:  n_free + n_held + n_cached == n_pages.  Only the radix tree (kv/radix.h) moves
 * pages in and out of `cached`; everyone else takes pages and drops them through it. */
#ifndef VT_KV_POOL_H
#define VT_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

typedef struct vt_pool {
    int32_t n_pages, n_free, n_held, n_cached;
    int32_t *free_stack; /* [n_pages], the top is free_stack[n_free - 1] */
    int32_t *refs;       /* [n_pages] sequences that use the page */
    uint8_t *in_tree;    /* [n_pages] the radix tree knows the page */
} vt_pool;

vt_status vt_pool_init(vt_pool *p, int32_t n_pages, vt_err *err);
void vt_pool_release(vt_pool *p);
/* The first n of the pages it was made with are there now; fewer than before only while all are
 * free. */
void vt_pool_resize(vt_pool *p, int32_t n);

/* n pages with one reference each into ids[0..n). VT_ERR_NO_PAGES leaves ids untouched. */
vt_status vt_pool_take(vt_pool *p, int32_t n, int32_t *ids);
void vt_pool_ref(vt_pool *p, int32_t page);
/* The last reference gone, a page of the tree becomes cached, any other free. */
void vt_pool_unref(vt_pool *p, int32_t page);
void vt_pool_enter_tree(vt_pool *p, int32_t page);
/* An unreferenced page becomes free. */
void vt_pool_leave_tree(vt_pool *p, int32_t page);

/* Counts everything again; VT_ERR_FORMAT and a sentence if the books are wrong. For tests. */
vt_status vt_pool_check(const vt_pool *p, vt_err *err);

#endif
