/* Scatter the new K and V rows of every token to their page slots, both in one op.
 *
 *   pool[page, h, slot % page_size, :] = round(k[t, h, :])     slot = batch.slot[t] */
#ifndef VT_OPS_KV_STORE_H
#define VT_OPS_KV_STORE_H

#include "ops/op.h"

typedef struct kv_store_args {
    const vt_batch *batch;      /* slot */
    const vt_tensor *k, *v;     /* [tokens, kv_heads * head_dim], slices */
    vt_tensor *k_pool, *v_pool; /* [pages, kv_heads, page_size, head_dim] */
} kv_store_args;

extern const vt_op kv_store_op;

#endif
