/* The CUDA rows of rope and of rope_store share this: rope.cu computes both. */
#ifndef VT_OPS_ROPE_CUDA_H
#define VT_OPS_ROPE_CUDA_H

#include "ops/kv_store/kv_store.h"
#include "ops/rope/rope.h"

bool rope_cuda_supports(const void *args, const vt_target *t, const vt_size *upto);
/* With store NULL this is rope alone. Otherwise the rotated k and v go to their page slots, and k
 * of the activations is not written. */
vt_status rope_cuda_launch(const rope_args *a, const kv_store_args *store, vt_cuda_lane *lane);
void rope_cuda_describe(const rope_args *a, const kv_store_args *store, const vt_target *t,
                        const vt_size *size, vt_cut *out);

#endif
