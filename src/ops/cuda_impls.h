/* The CUDA implementations, each in src/ops/<op>/<op>_cuda.c. Their tensors are in device memory:
 * activations and matrices BF16, norms, biases and tables F32, ids I32. Each chooses its kernel
 * (family, template parameters, grid) from shapes and the lane's level. Where those kernels want
 * rows of 16-byte vectors there is a second one behind them in the card's table, "cuda-any", for
 * every other shape. */
#ifndef VT_OPS_CUDA_IMPLS_H
#define VT_OPS_CUDA_IMPLS_H

#include "device/cuda.h"
#include "ops/op.h"

extern const vt_impl embed_cuda_impl, rmsnorm_cuda_impl, add_rmsnorm_cuda_impl, linear_cuda_impl,
    rope_cuda_impl, kv_store_cuda_impl, attention_decode_cuda_impl, attention_prefill_cuda_impl,
    silu_mul_cuda_impl, sample_cuda_impl, moe_route_cuda_impl, moe_linear_cuda_impl;

/* Loads of one element, no tensor cores: correct for any shape, not fast. */
extern const vt_impl linear_cuda_any_impl, rope_cuda_any_impl, kv_store_cuda_any_impl,
    attention_decode_cuda_any_impl, attention_prefill_cuda_any_impl, moe_route_cuda_any_impl,
    moe_linear_cuda_any_impl;

/* What a KV pool may be made of. */
static inline bool cuda_is_kv(vt_dtype t) { return t == VT_BF16 || t == VT_FP8_E4M3; }

static inline uint32_t cuda_blocks(int64_t items, int64_t per_block)
{
    return (uint32_t)vt_ceil_div(items, per_block);
}

/* Rows of 16-byte vectors: the row length and the distance between rows keep them aligned. */
static inline bool cuda_vectors_of_8(int64_t n, int64_t stride)
{
    return n % 8 == 0 && stride % 8 == 0;
}

#endif
