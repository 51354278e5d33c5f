/* linear on CUDA for few tokens: the launches of linear_small.cu and linear_ordered.cu. */
#include "ops/linear/linear_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"

/* Segments: with tiles of 64 weight rows at least so many CTAs stream a weight, if its rows are
 * long enough to give each of them two steps of 64 columns. */
enum { ORDERED_CTAS = 99, MAX_SEGMENTS = 8, ORDERED_TOKENS_MOST = 16 };

/* linear_small.cu takes this many tokens at once: with long rows the loop over K keeps so many
 * loads in flight that four tiles of tokens do not fit the registers. */
int32_t linear_small_tokens(const linear_args *a) { return a->w->cols > 4096 ? 16 : 32; }

linear_params linear_params_of(const linear_args *a)
{
    return (linear_params){.x = a->x->data,
                           .w = a->w->part[0]->data,
                           .bias = a->bias ? a->bias->data : NULL,
                           .residual = a->residual ? a->residual->data : NULL,
                           .y = a->y->data,
                           .x_stride = (int32_t)a->x->row_stride,
                           .y_stride = (int32_t)a->y->row_stride,
                           .residual_stride = a->residual ? (int32_t)a->residual->row_stride : 0,
                           .n_tokens = (int32_t)a->x->dim[0],
                           .rows = linear_outputs(a),
                           .scale = a->scale};
}

static vt_status run_small(const linear_args *a, const vt_lane *lane)
{
    int32_t k = (int32_t)a->w->cols, chunks = (int32_t)vt_ceil_div(k, 32);
    int32_t tokens = (int32_t)a->x->dim[0], rows = linear_outputs(a), pair = linear_pair(a);
    int32_t warps = chunks > 48 ? 8 : 4;
    int32_t tiles = tokens <= 8 ? 1 : tokens <= 16 ? 2 : 4;
    bool half = !pair && rows / 16 < lane->target->sm_count;
    linear_params p = linear_params_of(a);
    return vt_cuda_launch(
        lane->cuda,
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

vt_status linear_in_pieces(const linear_args *a, const vt_lane *lane, int32_t most,
                           vt_status (*run)(const linear_args *piece, const vt_lane *lane))
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

/* A few tokens as the GEMMs would compute them. */
static vt_status run_ordered(const linear_args *a, const vt_lane *lane)
{
    int32_t k = (int32_t)a->w->cols, warps = linear_segments(a), pair = linear_pair(a);
    int32_t rows = linear_outputs(a), tiles = a->x->dim[0] <= 8 ? 1 : 2;
    /* half as many rows a CTA where that many warps would leave memory idle */
    bool half = !pair && rows / 16 * warps < 6 * lane->target->sm_count;
    linear_params p = linear_params_of(a);
    return vt_cuda_launch(
        lane->cuda,
        &(cuda_launch){.spec = JIT_SPEC("linear_ordered.cu", "linear_ordered", {"k", k},
                                        {"warps", warps}, {"tiles", tiles}, {"half", half},
                                        {"pair", pair}, {"out_f32", a->y->dtype == VT_F32},
                                        {"bias", a->bias != NULL},
                                        {"residual", a->residual != NULL}),
                       .grid = {cuda_blocks(rows, pair || half ? 8 : 16), 1, 1},
                       .threads = (uint32_t)warps * 32},
        &p, sizeof p);
}

vt_status linear_small_run(const void *args, const vt_lane *lane)
{
    return linear_in_pieces(args, lane, linear_small_tokens(args), run_small);
}

vt_status linear_ordered_run(const void *args, const vt_lane *lane)
{
    return linear_in_pieces(args, lane, ORDERED_TOKENS_MOST, run_ordered);
}
