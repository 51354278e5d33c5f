/* Page pool: which KV pages are in use. The keys and values themselves lie elsewhere (kv/cache.h,
 * or on a device).
 *
 *   free                  held                          cached
 *   on the free stack     refs > 0: sequences use it    refs == 0: kept by the radix tree
 *
 * Always true:  n_free + n_held + n_cached == n_pages.  An engine's pool is called by
 * the radix tree (kv/radix.h) only: everyone else takes and drops pages through the tree. */
#ifndef VT_KV_POOL_H
#define VT_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

typedef struct vt_pool {
    int32_t n_pages, n_free, n_held, n_cached;
    int32_t *free_stack; /* [n_pages], the top is free_stack[n_free - 1] */
    int32_t *refs;       /* [n_pages] how many sequences use the page */
    uint8_t *in_tree;    /* [n_pages] whether the radix tree has entered the page */
} vt_pool;

vt_status vt_pool_init(vt_pool *p, int32_t n_pages, vt_err *err);
void vt_pool_release(vt_pool *p);
/* From now on the first n of the pages that the pool was made with can be handed out. The number
 * may shrink only while all pages are free. */
void vt_pool_resize(vt_pool *p, int32_t n);

/* Takes n free pages, with one reference each, into ids[0..n). VT_ERR_NO_PAGES if fewer are free;
 * ids is untouched then. */
vt_status vt_pool_take(vt_pool *p, int32_t n, int32_t *ids);
/* Adds a reference to a held or cached page. */
void vt_pool_ref(vt_pool *p, int32_t page);
/* Drops a reference. When the last one is dropped, a page of the tree becomes cached and any other
 * page becomes free. */
void vt_pool_unref(vt_pool *p, int32_t page);
/* Called when the radix tree has entered a held page. */
void vt_pool_enter_tree(vt_pool *p, int32_t page);
/* Called when the radix tree has forgotten a page: without references it becomes free. */
void vt_pool_leave_tree(vt_pool *p, int32_t page);

/* Counts all pages again; VT_ERR_FORMAT with a message if a count is wrong. For tests. */
vt_status vt_pool_check(const vt_pool *p, vt_err *err);

#endif
