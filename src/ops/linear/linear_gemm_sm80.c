/* The launch of gemm_sm80.cu: tiles of 64 or 128 x 128, with K split if there are fewer tiles than
 * SMs. */
#include "ops/linear/linear_cuda.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_params.h"

/* Tiles of bm tokens x 128 rows of the weight. K is cut into `split` parts, with a CTA for each. */
typedef struct gemm_form {
    int32_t bm, split;
    cuda_launch launch;
} gemm_form;

enum { BN = 128 };

/* segments: the number of segments of K that the weight prescribes (linear_segments), or 0 for the
 * fastest cut. */
static gemm_form form_of(const linear_args *a, const vt_target *t, int32_t tokens,
                         size_t workspace_bytes)
{
    int32_t rows = linear_outputs(a), pair = linear_pair(a), k = (int32_t)a->w->cols;
    int32_t sms = t->sm_count, segments = t->deterministic ? linear_segments(a) : 0;
    int32_t tiles_n = (int32_t)vt_ceil_div(rows, pair ? BN / 2 : BN),
            steps = (int32_t)vt_ceil_div(k, 64);
    int32_t bm = tokens <= 64 || vt_ceil_div(tokens, 128) * tiles_n < sms ? 64 : 128;
    int64_t tiles = vt_ceil_div(tokens, bm) * tiles_n;
    size_t part_bytes = (size_t)tiles * (size_t)bm * BN * sizeof(float);
    int64_t room = tiles <= CUDA_TICKETS && part_bytes > 0 ? (int64_t)(workspace_bytes / part_bytes)
                                                           : 1;
    int32_t split = 1;
    while (segments == 0 && split < 8 && tiles * split * 2 <= 2 * sms && steps / (2 * split) >= 4 &&
           2 * split <= room)
        split *= 2;
    /* a CTA for each segment, as long as there are at most two CTAs per SM */
    if (segments > 1 && tiles * segments <= 2 * sms && segments <= room)
        split = segments;
    int32_t stages = bm == 128 ? 3 : 4;
    return (gemm_form){
        .bm = bm,
        .split = split,
        .launch = {.spec = JIT_SPEC("gemm_sm80.cu", "gemm_sm80", {"k", k}, {"bm", bm}, {"bn", BN},
                                    {"stages", stages}, {"pair", pair},
                                    {"out_f32", a->y->dtype == VT_F32}, {"bias", a->bias != NULL},
                                    {"residual", a->residual != NULL}, {"split", split},
                                    {"segments", split > 1 || segments == 0 ? 1 : segments}),
                   .grid = {(uint32_t)tiles, 1, (uint32_t)split},
                   .threads = 256,
                   .no_pdl = a->fresh,
                   .shared_bytes = (uint32_t)(stages * (bm + BN) * 128)}};
}

vt_status linear_gemm_sm80_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (a->x->dim[0] == 0)
        return VT_OK;
    gemm_form f = form_of(a, lane->target, (int32_t)a->x->dim[0], lane->workspace_bytes);
    gemm_sm80_params p = {.x = a->x->data,
                          .w = a->w->part[0]->data,
                          .bias = a->bias ? a->bias->data : NULL,
                          .residual = a->residual ? a->residual->data : NULL,
                          .y = a->y->data,
                          .partial = lane->workspace,
                          .tickets = lane->tickets,
                          .x_stride = (int32_t)a->x->row_stride,
                          .y_stride = (int32_t)a->y->row_stride,
                          .residual_stride = a->residual ? (int32_t)a->residual->row_stride : 0,
                          .n_tokens = (int32_t)a->x->dim[0],
                          .rows = linear_outputs(a),
                          .scale = a->scale};
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

void linear_gemm_sm80_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const linear_args *a = args;
    gemm_form f = form_of(a, t, (int32_t)vt_size_rows(a->x, size), linear_workspace_bytes(t));
    linear_cut_shape(a, size, out);
    out->tile[0] = f.bm;
    out->tile[1] = BN;
    out->tile[2] = 64;
    out->split = f.split;
    vt_cut_roles(out, "8 warps, each half of the tokens by a quarter of the rows",
                 f.split > 1 ? "last CTA, in rising order" : NULL);
    vt_cut_grid(out, t, &f.launch, 16);
}
