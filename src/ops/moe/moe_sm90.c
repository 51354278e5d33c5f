/* The experts' linears for many tokens on Hopper: four or five launches a layer.
 *
 *   moe_group      slots (token, j) sorted by expert; tiles of up to `width` slots of one expert
 *   moe_gather     many slots an expert: x's rows in the order of the sorted slots
 *   moe_permute    quantised tiles: x with its columns in the order of the weights' first operand
 *   moe_gemm_sm90  gate and up, activation -> h, bf16, in the order of the sorted slots
 *   moe_gemm_sm90  down -> part [slots, hidden] bf16, in the order of the tokens
 *                  (moe_quant_sm90, both of them, where the weights are in quantised tiles)
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
#include "ops/linear/linear_pack.h"
#include "ops/linear/quant/linear_quant.h"
#include "ops/moe/moe_sm90_params.h"

enum {
    TILE_ROWS = 128,  /* of weights */
    QUANT_ROWS = 256, /* of weights in quantised tiles, for tiles of up to 128 slots */
    TILE_K = 64,
    OUT_BYTES = 4 * 64 * 128, /* moe_gemm_sm90.cu turns its results around here */
    SHARED_SLACK = 1024,
    STATIC_SHARED = 640, /* barriers and items */
    MAX_WEIGHT_STAGES = 10,
    MAX_QUANT_STAGES = 14,
    BOX_ROWS = 32, /* of x or h; moe_gemm_sm90.cu has the same number */
    GATHER_THREADS = 256,
    GROUP_THREADS = 1024,
    COMBINE_THREADS = 256,
    PERMUTE_THREADS = 128,
    /* moe_cuda.c's kernels are faster with so many tokens or fewer; for quantised weights, with
     * fewer slots an expert than these, on average */
    FEW_TOKENS = 8,
    FEW_QUANT_SLOTS = 4,
    GATHER_SLOTS = 192 /* moe_gather pays from so many on */
};

enum { N_WIDTHS = 4 };
static const int32_t kWidth[N_WIDTHS] = {32, 64, 128, 256};
static const uint32_t kRowStages[N_WIDTHS] = {9, 6, 4, 3}; /* the weights' ring has the rest */

static bool quantised(const moe_linear_args *a) { return a->gate_up->dtype != VT_BF16; }

/* How a call of some number of tokens runs. */
typedef struct call_form {
    int width;   /* of tiles: an index of kWidth */
    bool gather; /* the first product reads a copy of x in the order of the slots. Without one
                  * cp.async gathers the rows, which costs more where the tensor cores bind. */
} call_form;

/* The index of the width for this many tokens: the slots of most experts fit into one tile, or for
 * quantised weights, whose items have twice the rows, into two. */
static int width_of(const moe_linear_args *a, int64_t tokens)
{
    int64_t slots = moe_own_pairs(a, tokens * a->expert->dim[1]);
    int i = 0, last = N_WIDTHS - (quantised(a) ? 2 : 1);
    while (i < last && 3 * slots > (int64_t)2 * kWidth[i] * a->n_experts)
        i++;
    return i;
}

static call_form form_of(const moe_linear_args *a, int64_t tokens)
{
    int64_t slots = moe_own_pairs(a, tokens * a->expert->dim[1]);
    return (call_form){.width = width_of(a, tokens),
                       .gather = !quantised(a) && slots >= (int64_t)GATHER_SLOTS * a->n_experts};
}

/* moe_order.cuh: the order of the columns of what a product reads. */
static int32_t order_of(const vt_weight *w)
{
    return w->dtype == VT_BF16 ? 0 : linear_traits_of(w->dtype).halves ? 2 : 1;
}

static bool sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const moe_linear_args *a = args;
    int32_t n = a->n_experts;
    int64_t hidden = a->y->dim[1], ffn = a->down[0].cols;
    if (!moe_linear_cuda_impl.supports(args, t, upto) || a->y->row_stride % 8 != 0)
        return false;
    if (quantised(a))
        return moe_cuda_tiled(a->gate_up, n) && moe_cuda_tiled(a->down, n) &&
               hidden % TILE_K == 0 && ffn % TILE_K == 0;
    return moe_cuda_stacked(a->gate_up, n) && moe_cuda_stacked(a->down, n) && hidden % 8 == 0 &&
           ffn % 8 == 0;
}

static bool sm90_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const moe_linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, upto);
    if (t->deterministic)
        return true;
    if (!quantised(a))
        return tokens > FEW_TOKENS;
    return moe_own_pairs(a, tokens * a->expert->dim[1]) >= FEW_QUANT_SLOTS * (int64_t)a->n_experts;
}

static int32_t product_rows(const moe_linear_args *a, bool up)
{
    return (int32_t)(up ? a->down->cols : a->down->rows);
}

static const vt_weight *product_weight(const moe_linear_args *a, bool up)
{
    return up ? a->gate_up : a->down;
}

/* Shared memory for the stages of the ring or rings. */
static uint32_t ring_room(const vt_target *t)
{
    return (uint32_t)t->max_shared_bytes - SHARED_SLACK - OUT_BYTES - STATIC_SHARED;
}

/* Two stages of x for one of weights, which are a unit of 128 columns, and one of these more. */
static cuda_launch quant_launch(const moe_linear_args *a, const vt_target *t, bool up, int width)
{
    const vt_weight *w = product_weight(a, up);
    uint32_t x = (uint32_t)kWidth[width] * TILE_K * 2, room = ring_room(t),
             stages = MAX_QUANT_STAGES;
    uint32_t unit = (uint32_t)linear_quant_unit_bytes(w->dtype) * QUANT_ROWS / QUANT_TILE;
    while (stages * x + (stages / 2 + 1) * unit > room)
        stages--;
    uint32_t w_stages = stages / 2 + 1;
    return (cuda_launch){
        .spec = JIT_SPEC("moe_quant_sm90.cu", "moe_quant_sm90", LINEAR_QUANT_PARAMS(w->dtype),
                         {"order", order_of(a->down)}, {"up", up}, {"k", (int32_t)w->cols},
                         {"rows", product_rows(a, up)}, {"k_used", (int32_t)a->expert->dim[1]},
                         {"act", a->activation}, {"width", kWidth[width]},
                         {"stages", (int32_t)stages}, {"w_stages", (int32_t)w_stages},
                         {"bias", moe_cuda_bias(a, up)}),
        .grid = {(uint32_t)t->sm_count, 1, 1},
        .threads = 384,
        .shared_bytes = stages * x + w_stages * unit + SHARED_SLACK + OUT_BYTES};
}

static cuda_launch gemm_launch(const moe_linear_args *a, const vt_target *t, bool up, call_form f)
{
    uint32_t stage = (uint32_t)kWidth[f.width] * TILE_K * 2, w_stage = TILE_ROWS * TILE_K * 2;
    uint32_t stages = kRowStages[f.width], w_stages = (ring_room(t) - stages * stage) / w_stage;
    if (quantised(a))
        return quant_launch(a, t, up, f.width);
    if (w_stages > MAX_WEIGHT_STAGES)
        w_stages = MAX_WEIGHT_STAGES;
    return (cuda_launch){
        .spec = JIT_SPEC("moe_gemm_sm90.cu", "moe_gemm_sm90", {"up", up},
                         {"k", (int32_t)product_weight(a, up)->cols}, {"rows", product_rows(a, up)},
                         {"k_used", (int32_t)a->expert->dim[1]}, {"act", a->activation},
                         {"width", kWidth[f.width]}, {"in_order", !up || f.gather},
                         {"stages", (int32_t)stages}, {"w_stages", (int32_t)w_stages},
                         {"bias", moe_cuda_bias(a, up)}),
        .grid = {(uint32_t)t->sm_count, 1, 1},
        .threads = 384,
        .shared_bytes = stages * stage + w_stages * w_stage + SHARED_SLACK + OUT_BYTES};
}

/* Pairs of gate and up rows interleave by eight (moe_gemm_sm90.cu); gateless experts have none. */
static vt_status encode_weights(const moe_linear_args *a, vt_cuda *c, bool up, cu_tensor_map *out,
                                vt_err *err)
{
    const vt_weight *w = product_weight(a, up);
    int64_t row = w->cols * 2, outputs = product_rows(a, up);
    if (up && moe_gated(a))
        return vt_cuda_tensor_map(c, w->part[0]->data, 5,
                                  (const int64_t[]){w->cols, 8, 2, outputs / 8, a->n_experts},
                                  (const int64_t[]){row, outputs * row, 8 * row, 2 * outputs * row},
                                  (const uint32_t[]){TILE_K, 8, 2, TILE_ROWS / 16, 1}, out, err);
    return vt_cuda_tensor_map(
        c, w->part[0]->data, 3, (const int64_t[]){w->cols, outputs, a->n_experts},
        (const int64_t[]){row, outputs * row}, (const uint32_t[]){TILE_K, TILE_ROWS, 1}, out, err);
}

static vt_status run_gemm(const moe_linear_args *a, const vt_lane *lane, moe_gemm_params *p,
                          bool up, call_form f)
{
    vt_cuda_lane *l = lane->cuda;
    cuda_launch launch = gemm_launch(a, lane->target, up, f);
    p->weights = product_weight(a, up)->part[0]->data;
    if (!l->collect && !quantised(a)) {
        TRY(encode_weights(a, l->cuda, up, &p->w, &l->err));
        if (!up || f.gather)
            TRY(vt_cuda_tensor_map_2d(l->cuda, (void *)p->x, a->x->dim[0] * a->expert->dim[1],
                                      product_weight(a, up)->cols, (int64_t)p->x_stride * 2,
                                      BOX_ROWS, TILE_K, &p->rows, &l->err));
    }
    return vt_cuda_launch(l, &launch, p, sizeof *p);
}

/* Copies x to `out` in the order of the columns that the weights want. */
static vt_status run_permute(const moe_linear_args *a, vt_cuda_lane *l, uint16_t *out)
{
    int32_t tokens = (int32_t)a->x->dim[0], hidden = (int32_t)a->y->dim[1];
    moe_permute_params p = {
        .x = a->x->data, .out = out, .x_stride = (int32_t)a->x->row_stride, .n_tokens = tokens};
    cuda_launch launch = {
        .spec = JIT_SPEC("moe_permute.cu", "moe_permute", {"k", hidden},
                         {"order", order_of(a->gate_up)}, {"threads", PERMUTE_THREADS}),
        .grid = {cuda_blocks((int64_t)tokens * hidden / 32, PERMUTE_THREADS), 1, 1},
        .threads = PERMUTE_THREADS};
    return vt_cuda_launch(l, &launch, &p, sizeof p);
}

/* Copies x's rows to `out` in the order of the sorted slots. */
static vt_status run_gather(const moe_linear_args *a, vt_cuda_lane *l, const moe_gemm_params *p,
                            uint16_t *out)
{
    int64_t slots = a->x->dim[0] * a->expert->dim[1];
    moe_gather_params g = {.x = a->x->data,
                           .order = p->order,
                           .n_tiles = p->n_tiles,
                           .tile = p->tile,
                           .out = out,
                           .x_stride = (int32_t)a->x->row_stride};
    cuda_launch launch = {
        .spec = JIT_SPEC("moe_gather.cu", "moe_gather", {"k", (int32_t)a->y->dim[1]},
                         {"k_used", (int32_t)a->expert->dim[1]}, {"threads", GATHER_THREADS}),
        .grid = {cuda_blocks(slots * 32, GATHER_THREADS), 1, 1},
        .threads = GATHER_THREADS};
    return vt_cuda_launch(l, &launch, &g, sizeof g);
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

static vt_status run_form(const moe_linear_args *a, const vt_lane *lane, call_form f)
{
    vt_cuda_lane *l = lane->cuda;
    moe_cuda_scratch s = moe_cuda_scratch_of(a, a->x->dim[0]);
    char *w = lane->workspace;
    uint16_t *h = (uint16_t *)(w + s.h), *part = (uint16_t *)(w + s.part);
    /* the parts need half of their room, which is for fp32; x needs no more than they */
    uint16_t *x = part + a->x->dim[0] * a->expert->dim[1] * a->y->dim[1];
    TRY(moe_cuda_run_group(a, lane, kWidth[f.width], GROUP_THREADS));
    if (quantised(a))
        TRY(run_permute(a, l, x));
    moe_gemm_params up = {.x = a->x->data,
                          .order = (const int32_t *)(w + s.order),
                          .n_tiles = (const int32_t *)(w + s.n_tiles),
                          .tile = (const moe_tile *)(w + s.tiles),
                          .y = h,
                          .ticket = lane->tickets,
                          .x_stride = (int32_t)a->x->row_stride,
                          MOE_EXPERT_EXTRAS(a)};
    if (f.gather)
        TRY(run_gather(a, l, &up, x));
    if (quantised(a) || f.gather) {
        up.x = x;
        up.x_stride = (int32_t)a->y->dim[1];
    }
    moe_gemm_params down = up;
    down.x = h;
    down.x_stride = (int32_t)a->down->cols;
    down.bias = a->down_bias ? a->down_bias->data : NULL;
    down.y = part;
    down.ticket = up.ticket + 1; /* its CTAs begin while others of the first product run */
    TRY(run_gemm(a, lane, &up, true, f));
    TRY(run_gemm(a, lane, &down, false, f));
    return run_combine(a, l, part);
}

static vt_status sm90_run(const void *args, const vt_lane *lane)
{
    const moe_linear_args *a = args;
    call_form f = form_of(a, a->x->dim[0]);
    if (a->x->dim[0] == 0)
        return VT_OK;
    for (int i = 0; i < f.width + f.gather && lane->cuda->collect; i++) /* fewer tokens */
        TRY(run_form(a, lane, (call_form){.width = i}));
    TRY(moe_cuda_check_workspace(a, lane));
    return run_form(a, lane, f);
}

static int64_t sm90_tickets(const void *args, const vt_target *t)
{
    (void)args, (void)t;
    return 2; /* one a product */
}

/* There are several launches; the cut describes gate and up, where every tile is full. */
static void sm90_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const moe_linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size), slots = moe_own_pairs(a, tokens * a->expert->dim[1]);
    call_form f = form_of(a, tokens);
    int width = f.width, rows = quantised(a) ? QUANT_ROWS : TILE_ROWS;
    int64_t experts = slots < a->n_experts ? slots : a->n_experts,
            tiles = experts ? experts * vt_ceil_div(vt_ceil_div(slots, experts), kWidth[width]) : 0;
    cuda_launch launch = gemm_launch(a, t, true, f);
    moe_cuda_linear_cut(a, size, out);
    out->tile[0] = kWidth[width];
    out->tile[1] = rows;
    out->tile[2] = TILE_K;
    vt_cut_roles(out, "sort by expert, gate and up, down, sum; 1 producer warpgroup, 2 consumers",
                 NULL);
    vt_cut_cuda(out, t, tiles * vt_ceil_div(product_rows(a, true), moe_gated(a) ? rows / 2 : rows),
                &launch, 16);
    out->resident = 1; /* its registers fill an SM */
    out->waves = (double)out->items / out->workers;
}

const vt_impl moe_linear_sm90_impl = {CUDA_ROW("grouped_sm90", sm90, sm90_supports),
                                      .level = 90,
                                      .fixed_order = true,
                                      .bf16_weights = true,
                                      .suits = sm90_suits,
                                      .packing = &moe_cuda_packing,
                                      .workspace = moe_cuda_workspace,
                                      .tickets = sm90_tickets,
                                      .extra = moe_cuda_extra};
