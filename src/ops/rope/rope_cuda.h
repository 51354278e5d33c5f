/* rope and the kv_store behind it in one launch: k and v of the activations are not read again, so
 * the rotated k goes straight to its page. */
#ifndef VT_OPS_ROPE_CUDA_H
#define VT_OPS_ROPE_CUDA_H

#include "ops/kv_store/kv_store.h"
#include "ops/rope/rope.h"

/* Whether these two calls may be one: the store reads the k that rope wrote. */
bool rope_store_cuda_fits(const rope_args *rope, const kv_store_args *store);
vt_status rope_store_cuda_run(const rope_args *rope, const kv_store_args *store,
                              const vt_lane *lane);

#endif
