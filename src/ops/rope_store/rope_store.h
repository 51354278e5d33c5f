/* Rotary embedding of q and k, followed by the store of K and V, as one op: the rotated k goes
 * straight to its page slot (ops/rope/rope.h and ops/kv_store/kv_store.h have the maths). Programs
 * call this op; rope and kv_store alone are for tests, benchmarks and labs.
 *
 * q is rotated in place. Whether the activations' k is rotated in place too is left open: nothing
 * reads it afterwards.
 *
 * The cache of latents (one KV head, no V: kv_store.h) has rows whose rotated dimensions come
 * first. With `latent_norm` what stands behind them is normalised on its way to the page:
 *
 *   pool row = ( rope(k[0, dims)) | norm(k[dims, head_dim)) ) */
#ifndef VT_OPS_ROPE_STORE_H
#define VT_OPS_ROPE_STORE_H

#include "ops/kv_store/kv_store.h"
#include "ops/rope/rope.h"

typedef struct rope_store_args {
    rope_args rope;
    kv_store_args store;          /* store.k is rope.k */
    const vt_tensor *latent_norm; /* [head_dim - dims] or NULL; its eps is rope.eps */
} rope_store_args;

extern const vt_op rope_store_op;

#endif
