/* Page pool: which KV pages are in use. The KV itself is elsewhere (kv/cache.h, or on a device).
 *
 *   free                  held                          cached
 *   on the free stack     refs > 0: sequences use it    refs == 0: kept by the radix tree
 *
 * Always true:  n_free + n_held + n_cached == n_pages.  Only the radix tree (kv/radix.h) calls
 * this; everyone else takes and drops pages through the tree. */
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
/* Sets how many of the pages that the pool was made with can be handed out: the first n. The number
 * may shrink only while all pages are free. */
void vt_pool_resize(vt_pool *p, int32_t n);

/* n pages with one reference each into ids[0..n). VT_ERR_NO_PAGES leaves ids untouched. */
vt_status vt_pool_take(vt_pool *p, int32_t n, int32_t *ids);
void vt_pool_ref(vt_pool *p, int32_t page);
/* Drops a reference. With the last one a page of the tree becomes cached, any other page free. */
void vt_pool_unref(vt_pool *p, int32_t page);
/* The radix tree has entered a held page. */
void vt_pool_enter_tree(vt_pool *p, int32_t page);
/* The radix tree has forgotten the page: if it has no references it becomes free. */
void vt_pool_leave_tree(vt_pool *p, int32_t page);

/* Counts all pages again; VT_ERR_FORMAT and a sentence if a count is wrong. For tests. */
vt_status vt_pool_check(const vt_pool *p, vt_err *err);

#endif
