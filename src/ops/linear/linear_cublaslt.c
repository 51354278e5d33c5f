/* Linears on cuBLASLt (device/cuda/cublaslt.h): which calls it can compute, and which it should.
 *
 * With the library a pair takes two launches: gate and up as one product into the workspace,
 * rounded to bf16, and then silu_mul. The library adds a bias of y's type alone and ours are fp32,
 * so for bf16 results a kernel writes the bias as bf16 to the workspace first. Our own kernels run
 * pairs with a bias, and weights that are smaller than those that were measured.
 *
 * Measured on one H200 (cuBLASLt 13.1, `gpu_kernels --only cublaslt`), microseconds of our kernels
 * / the library's: up to 256 tokens the period in a graph, beyond that single launches after a
 * flush.
 *
 *   tokens          64           128          256          512          2048          8192
 *   0.6B o       4.3 / 5.7    7.0 / 6.4   10.2 / 7.4   16.4 / 11.6  22.4 / 22.8   69.8 / 65.0
 *   0.6B qkv     5.3 / 5.0    6.8 / 5.2    8.2 / 7.2   13.9 / 13.2  38.2 / 36.4    124 / 123
 *   8B qkv      17.5 / 15.9  22.3 / 16.7  31.2 / 23.2  53.2 / 40.4   164 / 149     574 / 591
 *   8B o        13.9 / 12.1  23.8 / 14.4  25.4 / 18.3  30.6 / 31.1   108 / 104     429 / 421
 *   8B down     35.9 / 32.2  64.7 / 33.5  73.8 / 48.7  74.0 / 74.5   308 / 303    1252 / 1233
 *   14B down    64.9 / 52.5   101 / 56.5   118 / 77.6   185 / 132    560 / 560    2213 / 2208
 *   8B head      333 / 325    372 / 376    578 / 534
 *   8B gate+up  58.1 / 52.9  65.2 / 56.6  93.6 / 94.4   145 / 142    566 / 605    2438 / 2537
 *   14B gate+up  105 / 94.9   121 / 98.8   181 / 144    274 / 242   1074 / 1123   4554 / 4451
 *
 * (The library's gate+up is without the activation: silu_mul adds 2 to 7 us up to 256 tokens.) At
 * 192 tokens, which is one and a half of our tiles, the library is twice as fast. From 2048 tokens
 * on both reach the same limit.
 *
 * Encoders' products, all with a bias, in a graph, the library's with the bias's own kernel:
 *
 *   tokens                  512         1024          2048          4096         16384
 *   [2304 x 768]         10.5 / 6.9   17.4 / 8.9   25.0 / 14.2   40.2 / 24.8   122.9 / 92.1
 *   [768 x 768]           7.4 / 5.7    7.6 / 6.7   10.2 / 8.4    17.9 / 12.0    52.2 / 39.8
 *   [768 x 3072]         16.3 / 9.3   16.5 / 11.6  20.7 / 16.9   42.8 / 28.9   125.7 / 114.5
 *
 * Whole steps of 16,384 tokens without graphs: bert-base (768) 12 to 15 % more texts/s, MiniLM
 * (384) 7 to 45 % fewer, because its kernels are shorter than the host's part of a call. */
#include "device/cuda/cublaslt.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_params.h"
#include "ops/silu_mul/silu_mul.h"

/* Sizes of matrices, in weights, and the fewest columns. */
enum {
    LEAST = CUBLASLT_LEAST,
    LARGE = 16 << 20,
    LARGE_PAIR = 64 << 20,
    LEAST_COLS = CUBLASLT_LEAST_COLS,
    LEAST_BIASED = 768 * 768, /* encoders' linears, of many tokens */
    LEAST_COLS_BIASED = 768,
    LEAST_TOKENS_BIASED = 1024
};

/* Returns true if all rows are 16-byte vectors, which the library's kernels for Hopper need. */
static bool aligned_rows(const vt_tensor *t)
{
    return (uintptr_t)t->data % 16 == 0 && t->row_stride * vt_dtype_get(t->dtype)->bytes % 16 == 0;
}

bool linear_cublaslt_computes(const linear_args *a)
{
    bool pair = a->epilogue != LINEAR_NONE;
    return a->w->cols % 8 == 0 && a->w->rows % (pair ? 16 : 8) == 0 && aligned_rows(a->x) &&
           aligned_rows(a->y) && (uintptr_t)a->w->part[0]->data % 16 == 0 &&
           (!pair || (a->y->dtype == VT_BF16 && !a->residual && !a->bias)) &&
           (!a->residual || (aligned_rows(a->residual) && a->y->dtype == VT_BF16)) &&
           (!a->bias || (uintptr_t)a->bias->data % 16 == 0);
}

/* The bucket of a number of tokens: numbers that may be padded to each other (exec/cuda_step.c) are
 * in one bucket; beyond 1,024 buckets are coarser. An algorithm for more tokens than there are can
 * be slow: down of the 8B shape takes 33.7 us for 80 tokens with the one for 80 and 34.9 with the
 * one for 128, qkv 16.1 and 19.8, and for 160 tokens down 36.3 with the one for 160 and 59.1 with
 * the one for 192 (H200, graphs). */
static int32_t bucket_of(int64_t tokens)
{
    return (int32_t)(tokens <= 32     ? 32
                     : tokens <= 1024 ? vt_padded_tokens((int32_t)tokens)
                                      : (tokens + 511) / 512 * 512);
}

/* Returns true if gemm_split_sm90.cu runs up to 64 tokens in one wave of two CTAs an SM, of K in
 * two parts and no longer than was measured. In steps, where kernels follow each other without a
 * gap, that beats the library: qkv of the 8B shape [6144 x 4096], 24, 32, 48 and 64 sequences
 * 4.606, 4.669, 4.945 and 5.036 ms a step with the library, 4.523, 4.601, 4.839 and 4.978 without
 * (H200). Longer K loses (14B: qkv [7168 x 5120] 8.98 and 9.18 ms, o [5120 x 5120] 9.09), fewer
 * CTAs too (8B: o 1 %). */
static bool one_split_wave(const linear_args *a, const vt_target *t)
{
    return t->level >= 90 && a->w->cols <= 4096 && a->w->rows > 4096 &&
           a->w->rows <= 64 * t->sm_count;
}

/* Returns true if the library is faster than the rows behind it: those of level 90 as measured
 * above. At level 80 they are gemm_sm80.cu alone. With it an H200 prefills at 28 % of level 90's
 * speed, so from 65 tokens on the library runs everything. */
static bool faster(const linear_args *a, int32_t bucket, const vt_target *t)
{
    int64_t rows = a->w->rows, weights = rows * a->w->cols;
    if (a->bias && bucket >= LEAST_TOKENS_BIASED)
        return weights >= LEAST_BIASED && a->w->cols >= LEAST_COLS_BIASED;
    if (weights < LEAST || a->w->cols < LEAST_COLS)
        return false;
    if (t->level < 90 && bucket > 64)
        return true;
    if (a->epilogue != LINEAR_NONE && linear_split_is_wide(a, t, bucket))
        return false;
    if (linear_sm90_fits(a, t) && linear_split_fits(a, bucket) && linear_split_halves(a, t, bucket))
        return false;
    if (a->epilogue != LINEAR_NONE)
        return weights >= LARGE_PAIR &&
               (bucket <= 192 ||
                (bucket <= 256 && !linear_sm90_fills(bucket, rows / 2, true, t->sm_count)));
    if (a->y->dtype == VT_F32)
        return bucket > 128;
    if (bucket <= 64)
        return weights >= LARGE && !one_split_wave(a, t);
    return bucket <= 2048 || rows <= 2048;
}

bool linear_cublaslt_suits(const linear_args *a, const vt_target *t, int64_t tokens)
{
    return t->cublaslt_all || faster(a, bucket_of(tokens), t);
}

/* Writes the bias as bf16 behind the library's part of the workspace, if y is bf16. *there is set
 * to false if it has no room. */
static vt_status prepare_bias(const linear_args *a, const vt_lane *lane, const void **bias,
                              bool *there)
{
    size_t n = (size_t)a->w->rows;
    *there = true;
    *bias = a->bias ? a->bias->data : NULL;
    if (!a->bias || a->y->dtype == VT_F32)
        return VT_OK;
    *there = lane->workspace_bytes >= CUBLASLT_WORKSPACE + 2 * n;
    if (!*there)
        return VT_OK;
    linear_bias_params p = {.from = a->bias->data,
                            .to = (uint16_t *)((char *)lane->workspace + CUBLASLT_WORKSPACE),
                            .n = (int32_t)n};
    cuda_launch l = {.spec = JIT_SPEC("linear_bias.cu", "linear_bias"),
                     .grid = {cuda_blocks((int64_t)n, 256), 1, 1},
                     .threads = 256};
    *bias = p.to;
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status run_product(const linear_args *a, const vt_lane *lane, int32_t bucket, bool *ran)
{
    const void *bias;
    bool there;
    TRY(prepare_bias(a, lane, &bias, &there));
    if (!there)
        return VT_OK;
    cublaslt_product p = {.x = a->x->data,
                          .w = a->w->part[0]->data,
                          .c = a->residual ? a->residual->data : NULL,
                          .bias = bias,
                          .y = a->y->data,
                          .x_stride = a->x->row_stride,
                          .c_stride = a->residual ? a->residual->row_stride : 0,
                          .y_stride = a->y->row_stride,
                          .m = (int32_t)a->x->dim[0],
                          .n = (int32_t)a->w->rows,
                          .k = (int32_t)a->w->cols,
                          .bucket = bucket,
                          .f32 = a->y->dtype == VT_F32,
                          .alpha = a->scale};
    return vt_cublaslt_run(lane->cuda, &p, lane->workspace, ran);
}

/* Returns how many tokens' gate and up fit behind the library's part of the workspace: all of the
 * bucket, or a multiple of 64. */
static int32_t pair_tokens(const linear_args *a, const vt_lane *lane, int32_t bucket)
{
    size_t row = (size_t)a->w->rows * 2;
    size_t room = lane->workspace_bytes > CUBLASLT_WORKSPACE
                      ? (lane->workspace_bytes - CUBLASLT_WORKSPACE) / row
                      : 0;
    return room >= (size_t)bucket ? bucket : (int32_t)(room / 64 * 64);
}

/* The product of tokens [first, first + n) into the workspace, and silu_mul behind it. */
static vt_status run_pair_part(const linear_args *a, const vt_lane *lane, int64_t first, int64_t n,
                               int32_t bucket, bool *ran)
{
    vt_tensor both = vt_tensor_2d((char *)lane->workspace + CUBLASLT_WORKSPACE, VT_BF16, n,
                                  a->w->rows),
              x = *a->x, y = *a->y;
    x.data = (char *)x.data + vt_dtype_row_bytes(x.dtype, first * x.row_stride);
    y.data = (char *)y.data + vt_dtype_row_bytes(y.dtype, first * y.row_stride);
    x.dim[0] = y.dim[0] = n;
    linear_args product = *a;
    product.x = &x;
    product.y = &both;
    TRY(run_product(&product, lane, bucket, ran));
    if (!*ran && !lane->cuda->collect)
        return VT_OK;
    silu_mul_args act = {.x = &both,
                         .y = &y,
                         .activation = a->epilogue == LINEAR_SWIGLU ? VT_ACT_SILU
                                                                    : VT_ACT_GELU_TANH};
    return silu_mul_cuda_impl.run(&act, lane);
}

/* A pair goes in parts that fit the workspace. All parts of a product run one algorithm, and begin
 * at the same tokens however the step is padded, so padding changes no bit. */
static vt_status run_pair(const linear_args *a, const vt_lane *lane, int32_t bucket, bool *ran)
{
    int64_t tokens = a->x->dim[0];
    int32_t part = pair_tokens(a, lane, bucket);
    if (part == 0)
        return VT_OK;
    for (int64_t first = 0; first < tokens && (first == 0 || *ran); first += part) {
        int64_t n = tokens - first < part ? tokens - first : part;
        TRY(run_pair_part(a, lane, first, n, part < bucket ? bucket_of(part) : bucket, ran));
    }
    return VT_OK;
}

/* Where the library has no algorithm, or collects (it is warmed then), a GEMM of ours runs, or is
 * noted, all the same. */
static vt_status run_own(const linear_args *a, const vt_lane *lane)
{
    vt_lane own = *lane;
    vt_target without = *lane->target;
    without.cublaslt = false;
    own.target = &without;
    return linear_gemm_run(a, &own);
}

vt_status linear_cublaslt_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    int32_t bucket = bucket_of(a->x->dim[0]);
    bool ran = false;
    if (a->x->dim[0] == 0)
        return VT_OK;
    if (lane->workspace_bytes >= CUBLASLT_WORKSPACE)
        TRY(a->epilogue == LINEAR_NONE ? run_product(a, lane, bucket, &ran)
                                       : run_pair(a, lane, bucket, &ran));
    return ran ? VT_OK : run_own(a, lane);
}

/* The library chooses tiles and CTAs itself, so this describes one item and what the library says
 * about its choice. */
void linear_cublaslt_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    (void)t;
    const linear_args *a = args;
    linear_cut_shape(a, size, out);
    out->items = 1;
    vt_cut_roles(
        out, a->epilogue == LINEAR_NONE ? "cuBLASLt's kernel" : "cuBLASLt's kernel, then silu_mul",
        NULL);
}
