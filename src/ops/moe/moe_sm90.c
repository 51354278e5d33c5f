/* The experts' linears for many tokens on Hopper: four launches a layer.
 *
 *   moe_group      slots (token, j) sorted by expert; tiles of up to `width` slots of one expert
 *   moe_gemm_sm90  gate and up, activation -> h, bf16, in the order of the sorted slots
 *   moe_gemm_sm90  down -> part [slots, hidden] bf16, in the order of the tokens
 *   moe_combine    the parts of a token, each times its routing weight, in order
 *
 * Nothing waits for the host: the second kernel learns from the first how many tiles there are. The
 * width of tiles follows the slots that an expert gets on average. It decides how many slots read a
 * weight together and how many steps of K fit into shared memory, but not the order of any sum, so
 * --deterministic takes this row for every number of tokens. */
#include "ops/moe/moe_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/moe/moe_sm90_params.h"

enum {
    TILE_ROWS = 128, /* of weights */
    TILE_K = 64,
    OUT_BYTES = 4 * 64 * 128, /* moe_gemm_sm90.cu turns its results around here */
    SHARED_SLACK = 1024,
    STATIC_SHARED = 512,
    MAX_STAGES = 10,
    GROUP_THREADS = 1024,
    COMBINE_THREADS = 256,
    FEW_SLOTS = 8 /* an expert's, on average: moe_cuda.c's kernels are faster with fewer */
};

enum { N_WIDTHS = 4 };
static const int32_t kWidth[N_WIDTHS] = {32, 64, 128, 256};

/* The index of the width for this many tokens: the slots of most experts fit into one tile. */
static int width_of(const moe_linear_args *a, int64_t tokens)
{
    int64_t slots = tokens * a->expert->dim[1];
    int i = 0;
    while (i < N_WIDTHS - 1 && 3 * slots > (int64_t)2 * kWidth[i] * a->n_experts)
        i++;
    return i;
}

static bool sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const moe_linear_args *a = args;
    int64_t hidden = a->y->dim[1], ffn = a->down[0].cols;
    if (!moe_linear_cuda_impl.supports(args, t, upto))
        return false;
    return moe_cuda_stacked(a->gate_up, a->n_experts) && moe_cuda_stacked(a->down, a->n_experts) &&
           hidden % 8 == 0 && ffn % 8 == 0 && a->y->row_stride % 8 == 0;
}

static bool sm90_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const moe_linear_args *a = args;
    return t->deterministic ||
           vt_size_rows(a->x, upto) * a->expert->dim[1] >= (int64_t)FEW_SLOTS * a->n_experts;
}

static int32_t product_rows(const moe_linear_args *a, bool up)
{
    return (int32_t)(up ? a->gate_up->rows / 2 : a->down->rows);
}

static cuda_launch gemm_launch(const moe_linear_args *a, const vt_target *t, bool up, int width)
{
    uint32_t stage = (uint32_t)(TILE_ROWS + kWidth[width]) * TILE_K * 2;
    uint32_t fixed = SHARED_SLACK + OUT_BYTES;
    uint32_t stages = ((uint32_t)t->max_shared_bytes - fixed - STATIC_SHARED) / stage;
    if (stages > MAX_STAGES)
        stages = MAX_STAGES;
    return (cuda_launch){
        .spec = JIT_SPEC("moe_gemm_sm90.cu", "moe_gemm_sm90", {"up", up},
                         {"k", (int32_t)(up ? a->gate_up : a->down)->cols},
                         {"rows", product_rows(a, up)}, {"k_used", (int32_t)a->expert->dim[1]},
                         {"act", a->activation}, {"width", kWidth[width]},
                         {"stages", (int32_t)stages}, {"bias", moe_cuda_bias(a, up)}),
        .grid = {(uint32_t)t->sm_count, 1, 1},
        .threads = 384,
        .shared_bytes = stages * stage + fixed};
}

/* Pairs of gate and up rows interleave by eight (moe_gemm_sm90.cu). */
static vt_status encode_map(const moe_linear_args *a, vt_cuda *c, bool up, cu_tensor_map *out,
                            vt_err *err)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int64_t row = w->cols * 2, outputs = product_rows(a, up);
    if (up)
        return vt_cuda_tensor_map(c, w->part[0]->data, 5,
                                  (const int64_t[]){w->cols, 8, 2, outputs / 8, a->n_experts},
                                  (const int64_t[]){row, outputs * row, 8 * row, 2 * outputs * row},
                                  (const uint32_t[]){TILE_K, 8, 2, TILE_ROWS / 16, 1}, out, err);
    return vt_cuda_tensor_map(
        c, w->part[0]->data, 3, (const int64_t[]){w->cols, outputs, a->n_experts},
        (const int64_t[]){row, outputs * row}, (const uint32_t[]){TILE_K, TILE_ROWS, 1}, out, err);
}

static vt_status run_gemm(const moe_linear_args *a, const vt_lane *lane, moe_gemm_params *p,
                          bool up, int width)
{
    vt_cuda_lane *l = lane->cuda;
    cuda_launch launch = gemm_launch(a, lane->target, up, width);
    if (!l->collect)
        TRY(encode_map(a, l->cuda, up, &p->w, &l->err));
    return vt_cuda_launch(l, &launch, p, sizeof *p);
}

static vt_status run_combine(const moe_linear_args *a, vt_cuda_lane *l, const uint16_t *part)
{
    int32_t hidden = (int32_t)a->y->dim[1];
    moe_combine_params p = {.part = part,
                            .expert = a->expert->data,
                            .weight = a->weight->data,
                            .y = a->y->data,
                            .y_stride = (int32_t)a->y->row_stride};
    cuda_launch launch = {
        .spec = JIT_SPEC("moe_combine.cu", "moe_combine", {"hidden", hidden},
                         {"k_used", (int32_t)a->expert->dim[1]}, {"threads", COMBINE_THREADS},
                         {"accumulate", a->accumulate}),
        .grid = {(uint32_t)a->x->dim[0], cuda_blocks(hidden, 8 * COMBINE_THREADS), 1},
        .threads = COMBINE_THREADS};
    return vt_cuda_launch(l, &launch, &p, sizeof p);
}

static vt_status run_width(const moe_linear_args *a, const vt_lane *lane, int width)
{
    vt_cuda_lane *l = lane->cuda;
    moe_cuda_scratch s = moe_cuda_scratch_of(a, a->x->dim[0]);
    char *w = lane->workspace;
    uint16_t *h = (uint16_t *)(w + s.h), *part = (uint16_t *)(w + s.part);
    TRY(moe_cuda_run_group(a, lane, kWidth[width], GROUP_THREADS));
    moe_gemm_params up = {.x = a->x->data,
                          .order = (const int32_t *)(w + s.order),
                          .n_tiles = (const int32_t *)(w + s.n_tiles),
                          .tile = (const moe_tile *)(w + s.tiles),
                          .y = h,
                          .ticket = lane->tickets,
                          .x_stride = (int32_t)a->x->row_stride,
                          MOE_EXPERT_EXTRAS(a)};
    moe_gemm_params down = up;
    down.x = h;
    down.x_stride = (int32_t)a->down->cols;
    down.bias = a->down_bias ? a->down_bias->data : NULL;
    down.y = part;
    TRY(run_gemm(a, lane, &up, true, width));
    TRY(run_gemm(a, lane, &down, false, width));
    return run_combine(a, l, part);
}

static vt_status sm90_run(const void *args, const vt_lane *lane)
{
    const moe_linear_args *a = args;
    int width = width_of(a, a->x->dim[0]);
    if (a->x->dim[0] == 0)
        return VT_OK;
    for (int i = 0; i < width && lane->cuda->collect; i++) /* fewer tokens */
        TRY(run_width(a, lane, i));
    TRY(moe_cuda_check_workspace(a, lane));
    return run_width(a, lane, width);
}

static int64_t sm90_tickets(const void *args, const vt_target *t)
{
    (void)args, (void)t;
    return 1;
}

/* There are several launches; the cut describes gate and up, where every tile is full. */
static void sm90_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const moe_linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size), slots = tokens * a->expert->dim[1];
    int width = width_of(a, tokens);
    int64_t experts = slots < a->n_experts ? slots : a->n_experts,
            tiles = experts ? experts * vt_ceil_div(vt_ceil_div(slots, experts), kWidth[width]) : 0;
    cuda_launch launch = gemm_launch(a, t, true, width);
    moe_cuda_linear_cut(a, size, out);
    out->tile[0] = kWidth[width];
    out->tile[1] = TILE_ROWS;
    out->tile[2] = TILE_K;
    vt_cut_roles(out, "sort by expert, gate and up, down, sum; 1 producer warpgroup, 2 consumers",
                 NULL);
    vt_cut_cuda(out, t, tiles * vt_ceil_div(product_rows(a, true), TILE_ROWS / 2), &launch, 16);
    out->resident = 1; /* its registers fill an SM */
    out->waves = (double)out->items / out->workers;
}

const vt_impl moe_linear_sm90_impl = {CUDA_ROW("grouped_sm90", sm90, sm90_supports),
                                      .level = 90,
                                      .fixed_order = true,
                                      .suits = sm90_suits,
                                      .packing = &moe_cuda_packing,
                                      .workspace = moe_cuda_workspace,
                                      .tickets = sm90_tickets};
