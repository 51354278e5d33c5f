/* Scatter the new K and V rows of every token to their page slots, both in one op.
 *
 *   pool[page, h, slot % page_size, :] = round(k[t, h, :] / k_scale)     slot = batch.slot[t]
 *
 * The rows of a latent's cache hold K and V together: k alone is stored, and v and v_pool are NULL.
 *
 * No two tokens of a batch have the same slot: which of them stayed would depend on the order of
 * writes.
 *
 * Pools of FP8 (E4M3) have scales, and values beyond +-448 become +-448; other pools have scales of
 * 1. The quotient is computed as the fp32 product with the fp32 reciprocal. */
#ifndef VT_OPS_KV_STORE_H
#define VT_OPS_KV_STORE_H

#include "ops/op.h"

typedef struct kv_store_args {
    const vt_batch *batch;      /* slot */
    const vt_tensor *k, *v;     /* [tokens, kv_heads * head_dim], slices */
    vt_tensor *k_pool, *v_pool; /* [pages, kv_heads, page_size, head_dim] */
    float k_scale, v_scale;     /* factors of the stored K and V */
} kv_store_args;

extern const vt_op kv_store_op;

#endif
