/* The files of linear's CUDA implementation share this (linear_cuda.c says what each does). */
#ifndef VT_OPS_LINEAR_CUDA_H
#define VT_OPS_LINEAR_CUDA_H

#include "device/cuda/cuda.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/linear_params.h"

/* The workspace holds partial sums of the GEMMs, the library's workspace, pairs before their
 * activation, and panels. */
enum { LINEAR_WORKSPACE = 64 << 20 };

/* The kernels' PAIR: 0 no pair, 1 silu, 2 gelu */
static inline int32_t linear_pair(const linear_args *a)
{
    return a->epilogue == LINEAR_SWIGLU ? 1 : a->epilogue == LINEAR_GEGLU ? 2 : 0;
}
/* Columns of y. */
static inline int32_t linear_outputs(const linear_args *a)
{
    return (int32_t)(a->epilogue == LINEAR_NONE ? a->w->rows : a->w->rows / 2);
}

/* The size of a call's workspace: the target's, or, while that is not decided yet, the size that
 * the call asks for. */
static inline size_t linear_workspace_bytes(const vt_target *t)
{
    return t->workspace_bytes ? t->workspace_bytes : (size_t)LINEAR_WORKSPACE;
}

linear_params linear_params_of(const linear_args *a);
/* The same for a kernel that makes the norm in front of the call. */
linear_params linear_normed_params_of(const linear_args *a);

/* Calls run() for `most` tokens at a time. The weights are read once for each piece. The order of a
 * small kernel's sums is the same for any number of tokens, so cutting changes no result. */
vt_status linear_in_pieces(const linear_args *a, const vt_lane *lane, int32_t most,
                           vt_status (*run)(const linear_args *piece, const vt_lane *lane));

/* The shape of a call that goes through linear_in_pieces, and how many pieces there are. */
void linear_cut_pieces(const linear_args *a, const vt_size *size, int32_t most, vt_cut *out);

/* vt_impl.run and describe of the rows. */
typedef vt_status linear_run_fn(const void *args, const vt_lane *lane);
typedef void linear_describe_fn(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out);
linear_run_fn linear_small_run, linear_normed_run, linear_ordered_run, linear_gemm_sm80_run,
    linear_split_sm90_run, linear_gemm_sm90_run, linear_cublaslt_run, linear_quant_normed_run,
    linear_quant_passes_run, linear_quant_panels_run, linear_quant_sm90_run, linear_fp8_few_run,
    linear_fp8_gemm_run;
linear_describe_fn linear_small_describe, linear_normed_describe, linear_ordered_describe,
    linear_cublaslt_describe, linear_split_sm90_describe, linear_gemm_sm90_describe,
    linear_gemm_sm80_describe, linear_quant_normed_describe, linear_quant_passes_describe,
    linear_quant_panels_describe, linear_quant_sm90_describe, linear_fp8_few_describe,
    linear_fp8_gemm_describe;

/* linear_few_cuda.c */
int32_t linear_small_tokens(const linear_args *a);
/* The rows of x that a kernel which makes the norm keeps in shared memory for so many tokens. */
int32_t linear_normed_tokens(int64_t tokens);
/* Returns true if the call can make the norm in front of it, and its tokens are few enough. */
bool linear_normed_fits(const linear_args *a, const vt_size *upto);
/* Deterministic programs: whether linear_ordered.cu makes the norm in front of the call. */
bool linear_ordered_norms(const linear_args *a);
/* Deterministic programs: the number of segments in which a row of the weight is summed
 * (linear_order.cuh). It depends on the weight's shape alone, not on the number of tokens. */
int32_t linear_segments(const linear_args *a);

/* The GEMM that the card would choose for these BF16 weights and this many tokens. */
vt_status linear_gemm_run(const linear_args *a, const vt_lane *lane);

/* linear_sm90.c. Whether its kernels can run the call: they need level 90 for wgmma and TMA, rows
 * of 16-byte vectors, and pairs without a bias. */
bool linear_sm90_fits(const linear_args *a, const vt_target *t);
bool linear_split_fits(const linear_args *a, int64_t tokens);
bool linear_split_suits(const linear_args *a, const vt_target *t, int64_t tokens);
/* Returns true if the split kernel takes its wider tiles: it is then faster than the library. */
bool linear_split_is_wide(const linear_args *a, const vt_target *t, int64_t tokens);
/* Returns true if the split kernel cuts 65 to 128 tokens into two tiles of 64 for weights of few
 * rows: it is then faster than the library. */
bool linear_split_halves(const linear_args *a, const vt_target *t, int64_t tokens);
/* Returns true if the persistent kernel's tiles leave less than a tenth of the SMs' time idle. */
bool linear_sm90_fills(int64_t tokens, int64_t columns, bool pair, int32_t sms);

/* On Hopper linear_small.cu runs up to two tiles of 8 tokens, and the split GEMM and cuBLASLt take
 * over beyond. Tokens/s of qwen3-8b on an H200 with linear_small.cu and with these: 16 sequences
 * 2,570 and 2,030; 32 sequences 3,360 and 4,030. */
enum { LINEAR_SMALL_TOKENS = 16 };

/* linear_cublaslt.c */
bool linear_cublaslt_computes(const linear_args *a);
bool linear_cublaslt_suits(const linear_args *a, const vt_target *t, int64_t tokens);

/* linear_quant_cuda.c: weights in quantised tiles. */
enum { LINEAR_PASSES_TOKENS = 64 }; /* passes up to this number of tokens, panels beyond */
bool linear_quant_supports(const vt_weight *w);
enum { LINEAR_QUANT_FEW_WARPS = 4 }; /* of a CTA, where there are groups of rows for many CTAs */
/* How a kernel of quant_rows.cuh runs: its template parameters and its launch. The most warps of a
 * CTA decide the order of sums, so they must depend on the weight alone. */
typedef struct linear_quant_form {
    int32_t warps, slots, tiles, stages, resident; /* resident: CTAs per SM */
    uint32_t ring_bytes, shared_bytes;             /* shared_bytes: the rings, and padding */
} linear_quant_form;

linear_quant_form linear_quant_form_of(const vt_weight *w, int64_t tokens, int32_t most_warps,
                                       bool half, const vt_target *t);
/* Returns how many bytes the tiles have more than the weight has in the file. */
int64_t linear_quant_tiles_extra(const vt_weight *w);
/* The bytes that a run moves beyond the card's compulsory ones. */
vt_cost linear_quant_passes_extra(const void *args, const vt_target *t, const vt_batch *batch);
vt_cost linear_quant_panels_extra(const void *args, const vt_target *t, const vt_batch *batch);

/* linear_quant_sm90.c */
bool linear_quant_sm90_fits(const linear_args *a, const vt_target *t, int64_t tokens);
bool linear_quant_sm90_suits(const linear_args *a, const vt_target *t, int64_t tokens);
vt_cost linear_quant_sm90_extra(const void *args, const vt_target *t, const vt_batch *batch);

/* linear_fp8_sm90.c */
bool linear_fp8_few_fits(const linear_args *a, const vt_target *t, int64_t tokens);
bool linear_fp8_few_suits(const linear_args *a, int64_t tokens);
bool linear_fp8_gemm_fits(const linear_args *a, const vt_target *t);
bool linear_fp8_gemm_suits(const linear_args *a, const vt_target *t, int64_t tokens);
vt_cost linear_fp8_extra(const void *args, const vt_target *t, const vt_batch *batch);

#endif
