/* linear on CUDA: which kernel, which tiles.
 *
 *   quantised, FP8    linear_quant_cuda.c; all below is for BF16 weights
 *   up to 16 tokens   linear_small.cu: the weights stream through once, tokens ride along (up to
 *                     32 before Hopper, where cols <= 4096)
 *   more              linear_cublaslt.c, where cuBLASLt is there and was measured to be faster
 *   more, on Hopper   gemm_split_sm90.cu or gemm_sm90.cu (linear_sm90.c)
 *   more              gemm_sm80.cu: 64 or 128 x 128 tiles, split over K where tiles are fewer than
 *                     SMs
 *
 * BF16 weights lie in device memory as one dense matrix [rows, cols], the parts one after the
 * other.
 *
 * Deterministic: a row's sum must be taken in the same order whatever else is in the batch, so that
 * order is the weight's (linear_order.cuh: the number of segments depends on its shape alone), and
 * kernels that keep it are chosen by the number of tokens as above: linear_ordered.cu for a few,
 * the GEMMs with a CTA, or a turn of their loop, for every segment. */
#include "ops/linear/linear.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_pack_cuda.h"

/* Tokens that linear_small.cu takes at once: with long rows the loop over K keeps so many loads in
 * flight that four tiles of tokens do not fit the registers. */
static int32_t small_tokens(const linear_args *a) { return a->w->cols > 4096 ? 16 : 32; }

/* Segments: with tiles of 64 weight rows at least so many CTAs stream a weight, if its rows are
 * long enough to give each of them two steps of 64 columns. */
enum { ORDERED_CTAS = 99, MAX_SEGMENTS = 8 };

/* Tokens up to which linear_ordered.cu beats the split GEMM, measured on an H200: two tiles of 8
 * where every row is one warp's, one elsewhere (16 x 4096 x 12288: 67 us there, 43 in the GEMM;
 * 16 x 24576 x 4096: 58 and 80). */
enum { ORDERED_TOKENS = 16, ORDERED_TOKENS_SPLIT = 8 };

typedef struct gemm_params {
    const void *x, *w;
    const float *bias;
    const void *residual;
    void *y;
    float *partial;
    uint32_t *tickets;
    int32_t x_stride, y_stride, residual_stride, n_tokens, rows;
    float scale;
} gemm_params;

static bool linear_supports(const void *args)
{
    const linear_args *a = args;
    bool outputs = !a->y || a->y->dtype == VT_BF16 || a->y->dtype == VT_F32;
    bool weights = a->w->dtype == VT_BF16 ? !linear_scaled(a->w) && a->w->cols % 8 == 0
                                          : linear_quant_supports(a->w);
    return weights && outputs && (!a->x || (a->x->dtype == VT_BF16 && a->x->row_stride % 8 == 0)) &&
           (!a->bias || a->bias->dtype == VT_F32);
}

linear_small_params linear_small_params_of(const linear_args *a)
{
    return (linear_small_params){.x = a->x->data,
                                 .w = a->w->part[0]->data,
                                 .bias = a->bias ? a->bias->data : NULL,
                                 .residual = a->residual ? a->residual->data : NULL,
                                 .y = a->y->data,
                                 .x_stride = (int32_t)a->x->row_stride,
                                 .y_stride = (int32_t)a->y->row_stride,
                                 .residual_stride = a->residual ? (int32_t)a->residual->row_stride
                                                                : 0,
                                 .n_tokens = (int32_t)a->x->dim[0],
                                 .rows = linear_outputs(a),
                                 .scale = a->scale};
}

static vt_status run_small(const linear_args *a, vt_cuda_lane *lane)
{
    int32_t k = (int32_t)a->w->cols, chunks = (int32_t)vt_ceil_div(k, 32);
    int32_t tokens = (int32_t)a->x->dim[0], rows = linear_outputs(a), pair = linear_pair(a);
    int32_t warps = chunks > 48 ? 8 : 4;
    int32_t tiles = tokens <= 8 ? 1 : tokens <= 16 ? 2 : 4;
    bool half = !pair && rows / 16 < lane->cuda->sm_count;
    linear_small_params p = linear_small_params_of(a);
    return vt_cuda_launch(
        lane,
        &(cuda_launch){.spec = JIT_SPEC("linear_small.cu", "linear_small", {"k", k},
                                        {"warps", warps}, {"tiles", tiles}, {"half", half},
                                        {"pair", pair}, {"out_f32", a->y->dtype == VT_F32},
                                        {"bias", a->bias != NULL},
                                        {"residual", a->residual != NULL}),
                       .grid = {cuda_blocks(rows, pair || half ? 8 : 16), 1, 1},
                       .threads = (uint32_t)warps * 32},
        &p, sizeof p);
}

int32_t linear_segments(const linear_args *a)
{
    int64_t tiles = vt_ceil_div(a->w->rows, 64), steps = vt_ceil_div(a->w->cols, 64);
    int32_t n = 1;
    while (n < MAX_SEGMENTS && tiles * n < ORDERED_CTAS && steps >= 4 * n)
        n *= 2;
    return n;
}

/* A few tokens as the GEMMs would compute them. */
static vt_status run_ordered(const linear_args *a, vt_cuda_lane *lane)
{
    int32_t k = (int32_t)a->w->cols, warps = linear_segments(a), pair = linear_pair(a);
    int32_t rows = linear_outputs(a), tiles = a->x->dim[0] <= 8 ? 1 : 2;
    /* half as many rows a CTA where that many warps would leave memory idle */
    bool half = !pair && rows / 16 * warps < 6 * lane->cuda->sm_count;
    linear_small_params p = linear_small_params_of(a);
    return vt_cuda_launch(
        lane,
        &(cuda_launch){.spec = JIT_SPEC("linear_ordered.cu", "linear_ordered", {"k", k},
                                        {"warps", warps}, {"tiles", tiles}, {"half", half},
                                        {"pair", pair}, {"out_f32", a->y->dtype == VT_F32},
                                        {"bias", a->bias != NULL},
                                        {"residual", a->residual != NULL}),
                       .grid = {cuda_blocks(rows, pair || half ? 8 : 16), 1, 1},
                       .threads = (uint32_t)warps * 32},
        &p, sizeof p);
}

static vt_status run_gemm(const linear_args *a, vt_cuda_lane *lane, bool fresh, int32_t segments)
{
    enum { BN = 128 };
    int32_t tokens = (int32_t)a->x->dim[0], rows = linear_outputs(a), pair = linear_pair(a);
    int32_t k = (int32_t)a->w->cols, sms = lane->cuda->sm_count, out = pair ? BN / 2 : BN;
    int32_t tiles_n = (int32_t)vt_ceil_div(rows, out), steps = (int32_t)vt_ceil_div(k, 64);
    int32_t bm = tokens <= 64 || vt_ceil_div(tokens, 128) * tiles_n < sms ? 64 : 128;
    int64_t tiles = vt_ceil_div(tokens, bm) * tiles_n;
    size_t part_bytes = (size_t)tiles * (size_t)bm * BN * sizeof(float);
    int64_t room = tiles <= CUDA_TICKETS ? (int64_t)(lane->workspace_bytes / part_bytes) : 1;
    int32_t split = 1;
    while (segments == 0 && split < 8 && tiles * split * 2 <= 2 * sms && steps / (2 * split) >= 4 &&
           2 * split <= room)
        split *= 2;
    /* in order: a CTA for each segment while that fills no more than the SMs */
    if (segments > 1 && tiles * segments <= 2 * sms && segments <= room)
        split = segments;
    int32_t stages = bm == 128 ? 3 : 4;
    gemm_params p = {.x = a->x->data,
                     .w = a->w->part[0]->data,
                     .bias = a->bias ? a->bias->data : NULL,
                     .residual = a->residual ? a->residual->data : NULL,
                     .y = a->y->data,
                     .partial = lane->workspace,
                     .tickets = lane->tickets,
                     .x_stride = (int32_t)a->x->row_stride,
                     .y_stride = (int32_t)a->y->row_stride,
                     .residual_stride = a->residual ? (int32_t)a->residual->row_stride : 0,
                     .n_tokens = tokens,
                     .rows = rows,
                     .scale = a->scale};
    return vt_cuda_launch(
        lane,
        &(cuda_launch){.spec = JIT_SPEC("gemm_sm80.cu", "gemm_sm80", {"k", k}, {"bm", bm},
                                        {"bn", BN}, {"stages", stages}, {"pair", pair},
                                        {"out_f32", a->y->dtype == VT_F32},
                                        {"bias", a->bias != NULL},
                                        {"residual", a->residual != NULL}, {"split", split},
                                        {"segments", split > 1 || segments == 0 ? 1 : segments}),
                       .grid = {(uint32_t)tiles, 1, (uint32_t)split},
                       .threads = 256,
                       .no_pdl = fresh,
                       .shared_bytes = (uint32_t)(stages * (bm + BN) * 128)},
        &p, sizeof p);
}

vt_status linear_gemm_run(const linear_args *a, vt_cuda_lane *lane, bool fresh, int32_t segments)
{
    bool ran = false;
    if (segments == 0)
        TRY(linear_cublaslt_run(a, lane, &ran));
    if (ran)
        return VT_OK;
    if (linear_sm90_fits(a, lane))
        return linear_sm90_run(a, lane, fresh, segments);
    return run_gemm(a, lane, fresh, segments);
}

vt_status linear_in_pieces(const linear_args *a, vt_cuda_lane *lane, int32_t most,
                           vt_status (*run)(const linear_args *piece, vt_cuda_lane *lane))
{
    int32_t tokens = (int32_t)a->x->dim[0];
    for (int32_t at = 0; at < tokens; at += most) {
        vt_tensor x = *a->x, y = *a->y, residual = a->residual ? *a->residual : *a->y;
        linear_args piece = *a;
        x.dim[0] = y.dim[0] = residual.dim[0] = tokens - at < most ? tokens - at : most;
        x.data = (char *)x.data + (size_t)at * (size_t)x.row_stride * 2;
        y.data = (char *)y.data + (size_t)at * (size_t)y.row_stride * (y.dtype == VT_F32 ? 4 : 2);
        residual.data = (char *)residual.data + (size_t)at * (size_t)residual.row_stride * 2;
        piece.x = &x;
        piece.y = &y;
        piece.residual = a->residual ? &residual : NULL;
        TRY(run(&piece, lane));
    }
    return VT_OK;
}

static vt_status linear_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    int32_t tokens = (int32_t)a->x->dim[0];
    if (tokens == 0)
        return VT_OK;
    if (a->w->dtype != VT_BF16)
        return linear_quant_run(a, lane->cuda);
    bool sm90 = linear_sm90_fits(a, lane->cuda);
    if (lane->cuda->deterministic) {
        int32_t segments = linear_segments(a);
        if (tokens <= (sm90 && segments > 1 ? ORDERED_TOKENS_SPLIT : ORDERED_TOKENS))
            return run_ordered(a, lane->cuda);
        return linear_gemm_run(a, lane->cuda, false, segments);
    }
    if (tokens <= (sm90 ? LINEAR_SMALL_TOKENS : small_tokens(a)))
        return run_small(a, lane->cuda);
    return linear_gemm_run(a, lane->cuda, false, 0);
}

static vt_cost linear_extra(const void *args)
{
    const linear_args *a = args;
    return a->w->dtype == VT_BF16 ? (vt_cost){0} : linear_quant_extra(a);
}

const vt_impl linear_cuda_impl = {.name = "cuda",
                                  .device = VT_DEVICE_CUDA,
                                  .supports = linear_supports,
                                  .run = linear_run,
                                  .pack_bytes = linear_cuda_pack_bytes,
                                  .pack_unit = linear_cuda_pack_unit,
                                  .pack_type = linear_cuda_pack_type,
                                  .pack = linear_cuda_pack,
                                  .extra = linear_extra};
