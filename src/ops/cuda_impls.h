/* The CUDA rows of ops in src/ops/<op>/, and helpers that their host code shares. Only its card
 * needs to know a row, so a new op declares its rows in a header of its own folder and adds nothing
 * here. Tensors are in device memory: activations and matrices BF16, norms, biases and tables F32,
 * ids I32. If the fast kernels need rows of 16-byte vectors, a row "any" comes after them for all
 * other shapes. It loads single elements and uses no tensor cores: correct for any shape, not
 * fast. */
#ifndef VT_OPS_CUDA_IMPLS_H
#define VT_OPS_CUDA_IMPLS_H

#include "device/cuda/cuda.h"
#include "ops/op.h"

extern const vt_impl embed_cuda_impl, rmsnorm_cuda_impl, add_rmsnorm_cuda_impl, silu_mul_cuda_impl,
    rope_cuda_impl, rope_cuda_any_impl, kv_store_cuda_impl, kv_store_cuda_any_impl,
    rope_store_cuda_impl, rope_store_cuda_latent_impl, rope_store_cuda_any_impl,
    page_copy_cuda_impl, sample_cuda_impl, moe_route_cuda_impl, moe_route_cuda_any_impl,
    moe_linear_sm90_impl, moe_linear_cuda_impl, moe_linear_cuda_any_impl;

extern const vt_impl attention_decode_split, attention_decode_fa3, attention_decode_fa2,
    attention_decode_wide, attention_decode_any, attention_prefill_fa3, attention_prefill_fa2,
    attention_prefill_wide, attention_prefill_any;

extern const vt_impl linear_cuda_ordered, linear_cuda_normed, linear_cuda_small,
    linear_cuda_cublaslt, linear_cuda_split_sm90, linear_cuda_gemm_sm90, linear_cuda_gemm_sm80,
    linear_cuda_quant_normed, linear_cuda_quant_passes, linear_cuda_quant_sm90,
    linear_cuda_fp8_sm90, linear_cuda_gemm_fp8_sm90, linear_cuda_quant_panels, linear_cuda_any_impl;

/* The members of a row on a GPU whose functions are embed_run and embed_describe:
 * CUDA_ROW("gather", embed, embed_supports). */
#define CUDA_ROW(label, functions, takes)                                               \
    .name = label, .device = VT_DEVICE_CUDA, .supports = takes, .run = functions##_run, \
    .describe = functions##_describe

/* The members of the parameters of ops with sequence state that come from a batch. */
#define CUDA_STATE_PARAMS(b)                                                       \
    .seq_of = (b)->seq_of, .q_start = (b)->q_start, .state_from = (b)->state_from, \
    .state_to = (b)->state_to, .state_behind = (b)->state_behind

/* Returns true if a KV pool on a GPU may have elements of this type. */
static inline bool cuda_is_kv(vt_dtype t) { return t == VT_BF16 || t == VT_FP8_E4M3; }

static inline uint32_t cuda_blocks(int64_t items, int64_t per_block)
{
    return (uint32_t)vt_ceil_div(items, per_block);
}

/* Returns true if rows are 16-byte vectors: their length and their distance keep the vectors
 * aligned. */
static inline bool cuda_vectors_of_8(int64_t n, int64_t stride)
{
    return n % 8 == 0 && stride % 8 == 0;
}

#endif
