/* linear's rows for CUDA. The number of tokens decides which kernel family computes a product:
 *
 *   BF16 weights
 *     ordered      linear_ordered.cu, only with --deterministic: a few tokens, in the GEMMs' order
 *                  of sums
 *     small        linear_small.cu, up to 16 tokens: the weights are read once for all of them (up
 *                  to 32 tokens before Hopper, if cols <= 4096)
 *     cublaslt     the library, if it is installed and was measured to be faster
 *                  (linear_cublaslt.c)
 *     split_sm90   gemm_split_sm90.cu: tens of tokens, K split over a cluster (linear_sm90.c)
 *     gemm_sm90    gemm_sm90.cu: hundreds of tokens, persistent
 *     gemm_sm80    gemm_sm80.cu: more than a few tokens, before Hopper
 *   quantised and FP8 weights in tiles: quant/linear_quant.h, linear_quant_cuda.c
 *     fp8_sm90     linear_fp8_sm90.cu: FP8 with block scales, activations in E4M3, tens of tokens
 *     gemm_fp8_sm90  gemm_fp8_sm90.cu: the same for hundreds of tokens (both: linear_fp8_sm90.c)
 *     quant_normed linear_quant.cu with the norm in front of it, for very few tokens
 *     quant_sm90   linear_quant_sm90.cu: dequantises into wgmma's registers (linear_quant_sm90.c)
 *     passes       linear_quant.cu, 32 tokens per pass
 *     panels       quant_panel.cu writes rows of the weight as BF16, one of the GEMMs reads them
 *   any            linear_any.cu: BF16 rows that are not whole 16-byte vectors
 *
 * BF16 weights lie in device memory as one dense matrix [rows, cols], the parts one after the
 * other.
 *
 * Deterministic programs: a token's sum must have the same order whatever else is in the batch. So
 * the weight decides the order (linear_order.cuh: the number of segments depends on its shape
 * alone). Among the rows that keep this order the number of tokens decides as above: `ordered` for
 * a few tokens, else the GEMMs, whose CTAs sum one segment or several. `normed` makes the norm as
 * rmsnorm.cu does, and multiplies like `ordered`. */
#include "ops/linear/linear.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_pack_cuda.h"

/* The number of tokens up to which linear_ordered.cu beats the split GEMM, measured on an H200: two
 * tiles of 8 tokens if a weight has one segment (16 x 24576 x 4096: 58 us, the GEMM takes 80), else
 * one tile (16 x 4096 x 12288: 67 us, the GEMM takes 43). */
enum { ORDERED_TOKENS = 16, ORDERED_TOKENS_SPLIT = 8 };

static bool fits_common(const linear_args *a)
{
    bool outputs = !a->y || a->y->dtype == VT_BF16 || a->y->dtype == VT_F32;
    return outputs && a->epilogue != LINEAR_CLAMPED &&
           (!a->x || (a->x->dtype == VT_BF16 && a->x->row_stride % 8 == 0)) &&
           (!a->bias || a->bias->dtype == VT_F32);
}

static bool bf16_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const linear_args *a = args;
    return a->w->dtype == VT_BF16 && !linear_scaled(a->w) && a->w->cols % 8 == 0 && fits_common(a);
}

static bool sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return bf16_supports(args, t, upto) && linear_sm90_fits(args, t);
}

static bool split_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return sm90_supports(a, t, upto) && linear_split_fits(a, vt_size_rows(a->x, upto));
}

static bool split_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return linear_split_suits(a, t, vt_size_rows(a->x, upto));
}

static bool normed_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return bf16_supports(a, t, upto) && (!t->deterministic || linear_ordered_norms(a)) &&
           linear_normed_fits(a, upto);
}

static bool ordered_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    bool split = linear_sm90_fits(a, t) && linear_segments(a) > 1;
    return t->deterministic && !normed_supports(a, t, upto) &&
           vt_size_rows(a->x, upto) <= (split ? ORDERED_TOKENS_SPLIT : ORDERED_TOKENS);
}

static bool normed_makes(const void *args, const vt_size *size)
{
    (void)args, (void)size;
    return true;
}

/* The norm's weights, and its work. */
static vt_cost norm_cost(const void *args, const vt_batch *batch)
{
    const linear_args *a = args;
    return (vt_cost){.read = {.weights = vt_tensor_bytes(a->norm)},
                     .flops = {.fp32 = 4 * vt_batch_elems(a->x, batch)}};
}

static bool small_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    int32_t most = linear_sm90_fits(a, t) ? LINEAR_SMALL_TOKENS : linear_small_tokens(a);
    return vt_size_rows(a->x, upto) <= most;
}

static bool cublaslt_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return t->cublaslt && bf16_supports(args, t, upto) && linear_cublaslt_computes(args);
}

static bool cublaslt_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return linear_cublaslt_suits(a, t, vt_size_rows(a->x, upto));
}

static bool tiles_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const linear_args *a = args;
    return a->w->dtype != VT_BF16 && linear_quant_supports(a->w) && fits_common(a);
}

/* x * n is rounded before the division, so it is not what `passes` gives behind the norm's kernel:
 * a deterministic program, in which a token has the same bits in any batch, does without. */
static bool quant_normed_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return !t->deterministic && tiles_supports(a, t, upto) && linear_normed_fits(a, upto);
}

/* An SM with less shared memory has no room for all CTAs of linear_quant.cu with their rings and x.
 * It then holds fewer, and the others begin when those end. */
static bool quant_normed_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    enum { LEAST_SHARED = 160 << 10 };
    (void)args, (void)upto;
    return t->max_shared_bytes >= LEAST_SHARED;
}

static bool panels_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args; /* a pair's bias would have to be cut like its rows */
    return tiles_supports(a, t, upto) && !(a->epilogue != LINEAR_NONE && a->bias);
}

static bool quant_sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return tiles_supports(a, t, upto) && linear_quant_sm90_fits(a, t, vt_size_rows(a->x, upto));
}

static bool quant_sm90_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return !t->deterministic && linear_quant_sm90_suits(a, t, vt_size_rows(a->x, upto));
}

static bool fp8_sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return tiles_supports(a, t, upto) && linear_fp8_few_fits(a, t, vt_size_rows(a->x, upto));
}

static bool fp8_sm90_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return !t->deterministic && linear_fp8_few_suits(a, vt_size_rows(a->x, upto));
}

static bool gemm_fp8_sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return tiles_supports(args, t, upto) && linear_fp8_gemm_fits(args, t);
}

static bool gemm_fp8_sm90_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return !t->deterministic && linear_fp8_gemm_suits(a, t, vt_size_rows(a->x, upto));
}

static bool passes_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const linear_args *a = args;
    return t->deterministic || !panels_supports(a, t, upto) ||
           vt_size_rows(a->x, upto) <= LINEAR_PASSES_TOKENS;
}

static size_t workspace(const void *args, const vt_target *t)
{
    (void)args, (void)t;
    return LINEAR_WORKSPACE;
}

vt_status linear_gemm_run(const linear_args *a, const vt_lane *lane)
{
    static const vt_impl *const gemms[] = {&linear_cuda_cublaslt, &linear_cuda_split_sm90,
                                           &linear_cuda_gemm_sm90, &linear_cuda_gemm_sm80};
    for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++)
        if (vt_impl_fits(gemms[i], a, lane->target, NULL) &&
            (!gemms[i]->suits || gemms[i]->suits(a, lane->target, NULL)))
            return gemms[i]->run(a, lane);
    return vt_fail(&lane->cuda->err, VT_ERR_UNSUPPORTED, "no GEMM for rows of %lld columns",
                   (long long)a->w->cols);
}

const vt_impl linear_cuda_ordered = {CUDA_ROW("ordered", linear_ordered, bf16_supports),
                                     .fixed_order = true, .suits = ordered_suits,
                                     .packing = &linear_cuda_packing, .workspace = workspace};
const vt_impl linear_cuda_normed = {CUDA_ROW("normed", linear_normed, normed_supports),
                                    .makes_before = normed_makes,
                                    .before_cost = norm_cost,
                                    .fixed_order = true,
                                    .packing = &linear_cuda_packing,
                                    .workspace = workspace};
const vt_impl linear_cuda_small = {CUDA_ROW("small", linear_small, bf16_supports),
                                   .suits = small_suits, .packing = &linear_cuda_packing,
                                   .workspace = workspace};
const vt_impl linear_cuda_cublaslt = {CUDA_ROW("cublaslt", linear_cublaslt, cublaslt_supports),
                                      .suits = cublaslt_suits, .packing = &linear_cuda_packing,
                                      .workspace = workspace, .library = "cublasLt"};
const vt_impl linear_cuda_split_sm90 = {CUDA_ROW("split_sm90", linear_split_sm90, split_supports),
                                        .family = "sm90",
                                        .level = 90,
                                        .fixed_order = true,
                                        .suits = split_suits,
                                        .packing = &linear_cuda_packing,
                                        .workspace = workspace};
const vt_impl linear_cuda_gemm_sm90 = {CUDA_ROW("gemm_sm90", linear_gemm_sm90, sm90_supports),
                                       .family = "sm90",
                                       .level = 90,
                                       .fixed_order = true,
                                       .packing = &linear_cuda_packing,
                                       .workspace = workspace};
const vt_impl linear_cuda_gemm_sm80 = {CUDA_ROW("gemm_sm80", linear_gemm_sm80, bf16_supports),
                                       .family = "sm80", .fixed_order = true,
                                       .packing = &linear_cuda_packing, .workspace = workspace};
const vt_impl linear_cuda_quant_sm90 = {
    CUDA_ROW("quant_sm90", linear_quant_sm90, quant_sm90_supports),
    .family = "sm90",
    .level = 90,
    .bf16_weights = true,
    .suits = quant_sm90_suits,
    .packing = &linear_cuda_packing,
    .workspace = workspace,
    .extra = linear_quant_sm90_extra};
const vt_impl linear_cuda_fp8_sm90 = {CUDA_ROW("fp8_sm90", linear_fp8_few, fp8_sm90_supports),
                                      .family = "sm90",
                                      .level = 90,
                                      .fp8_products = true,
                                      .suits = fp8_sm90_suits,
                                      .packing = &linear_cuda_packing,
                                      .workspace = workspace,
                                      .extra = linear_fp8_extra};
const vt_impl linear_cuda_gemm_fp8_sm90 = {
    CUDA_ROW("gemm_fp8_sm90", linear_fp8_gemm, gemm_fp8_sm90_supports),
    .family = "sm90",
    .level = 90,
    .fp8_products = true,
    .suits = gemm_fp8_sm90_suits,
    .packing = &linear_cuda_packing,
    .workspace = workspace,
    .extra = linear_fp8_extra};
const vt_impl linear_cuda_quant_normed = {
    CUDA_ROW("quant_normed", linear_quant_normed, quant_normed_supports),
    .makes_before = normed_makes,
    .before_cost = norm_cost,
    .suits = quant_normed_suits,
    .packing = &linear_cuda_packing,
    .workspace = workspace,
    .extra = linear_quant_passes_extra};
const vt_impl linear_cuda_quant_passes = {CUDA_ROW("passes", linear_quant_passes, tiles_supports),
                                          .fixed_order = true,
                                          .suits = passes_suits,
                                          .packing = &linear_cuda_packing,
                                          .workspace = workspace,
                                          .extra = linear_quant_passes_extra};
const vt_impl linear_cuda_quant_panels = {
    CUDA_ROW("panels", linear_quant_panels, panels_supports), .bf16_weights = true,
    .packing = &linear_cuda_packing, .workspace = workspace, .extra = linear_quant_panels_extra};
