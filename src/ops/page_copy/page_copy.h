/* Copies the first slots of KV pages to other pages, in every layer's K and V pool: a prefix hit
 * that ends inside a page takes a copy of that page's beginning. Where K's rows hold V too, there
 * are K pools alone.
 *
 *   pool[to, h, i, :] = pool[from, h, i, :]     i < n_tokens, for every copy {from, to, n_tokens}
 *
 * A copy's source is never another one's destination. */
#ifndef VT_OPS_PAGE_COPY_H
#define VT_OPS_PAGE_COPY_H

#include "ops/op.h"

typedef struct page_copy_args {
    const vt_batch *batch; /* copies */
    vt_tensor *k, *v;      /* [n_layers] pools [pages, kv_heads, page_size, head_dim]; v: or NULL */
    int32_t n_layers;
    int32_t first_page; /* the page of the pools that is page 0 of the batch */
} page_copy_args;

extern const vt_op page_copy_op;

#endif
