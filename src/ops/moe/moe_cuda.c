/* Mixture of experts on CUDA: five launches a layer.
 *
 *   moe_route   experts and weights of every token
 *   moe_group   slots (token, j) sorted by expert; tiles of up to 16 slots of one expert
 *   moe_expert  gate and up, activation -> h [slots, ffn] bf16
 *   moe_expert  down, times the routing weight -> part [slots, hidden] fp32
 *               (moe_quant, either of them, where its weights are in quantised tiles)
 *   moe_sum     the slots of a token, in order
 *
 * The grid has room for the most tiles that routing can make, so nothing waits for the host and a
 * graph serves every routing. Expert weights lie one after the other: [experts, 2 ffn, hidden] with
 * gate before up, [experts, hidden, ffn]; tiles likewise, each expert a matrix. Correct first: a
 * tile reads its expert's weights whole, so a large prefill reads them tokens * used / (16 experts)
 * times over. */
#include "ops/moe/moe_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/linear_quant.h"
#include "ops/moe/moe.h"
#include "ops/moe/moe_params.h"

enum { TILE = 16, GROUP_THREADS = 256 };

typedef struct scratch {
    size_t order, tiles, n_tiles, count, h, part, bytes;
} scratch;

static int64_t most_tiles(int64_t slots, int32_t experts)
{
    int64_t ragged = slots < experts ? slots : experts;
    return ragged + slots / TILE;
}

static size_t take(size_t *at, int64_t n, size_t size)
{
    size_t here = *at;
    *at = vt_round_up(here + (size_t)n * size, 256);
    return here;
}

static scratch scratch_of(int64_t slots, int32_t experts, int32_t hidden, int32_t ffn)
{
    scratch s;
    size_t at = 0;
    s.order = take(&at, slots, 4);
    s.tiles = take(&at, most_tiles(slots, experts), sizeof(moe_tile));
    s.n_tiles = take(&at, 1, 4);
    s.count = take(&at, (int64_t)GROUP_THREADS * experts, 4);
    s.h = take(&at, slots * ffn, 2);
    s.part = take(&at, slots * hidden, 4);
    s.bytes = at;
    return s;
}

size_t moe_cuda_workspace(const void *args, const vt_target *t)
{
    const moe_linear_args *a = args;
    int64_t slots = (int64_t)t->limits.max_tokens * a->expert->dim[1];
    return scratch_of(slots, a->n_experts, (int32_t)a->y->dim[1], (int32_t)a->down[0].cols).bytes;
}

/* ---- routing ---- */

static bool route_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_route_args *a = args;
    return a->x->dtype == VT_BF16 && a->router->dtype == VT_F32 && a->router->dim[1] % 8 == 0 &&
           a->x->row_stride % 8 == 0 && a->router->dim[0] <= MOE_CUDA_EXPERTS && a->k <= 16;
}

static cuda_launch route_launch_of(const moe_route_args *a, int64_t tokens)
{
    return (cuda_launch){.spec = JIT_SPEC("moe_route.cu", "moe_route",
                                          {"hidden", (int32_t)a->router->dim[1]},
                                          {"experts", (int32_t)a->router->dim[0]}, {"k_used", a->k},
                                          {"normalise", a->normalise}),
                         .grid = {(uint32_t)tokens, 1, 1},
                         .threads = 256};
}

static vt_status route_run(const void *args, const vt_lane *lane)
{
    const moe_route_args *a = args;
    int64_t tokens = a->x->dim[0];
    if (tokens == 0 && !lane->cuda->collect)
        return VT_OK;
    moe_route_params p = {a->x->data, a->router->data, a->expert->data, a->weight->data,
                          (int32_t)a->x->row_stride};
    cuda_launch l = route_launch_of(a, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

void moe_cuda_route_cut(const moe_route_args *a, const vt_target *t, const vt_size *size,
                        const cuda_launch *l, int32_t vector_bytes, vt_cut *out)
{
    vt_cut_shape(out, "[%lld x %lld] x [%lld x %lld], best %d", (long long)vt_size_rows(a->x, size),
                 (long long)a->router->dim[1], (long long)a->router->dim[1],
                 (long long)a->router->dim[0], a->k);
    out->tile[0] = 1;
    vt_cut_roles(out, "8 warps score experts, then 1 chooses", NULL);
    vt_cut_grid(out, t, l, vector_bytes);
}

static void route_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    cuda_launch l = route_launch_of(args, vt_size_rows(((const moe_route_args *)args)->x, size));
    moe_cuda_route_cut(args, t, size, &l, 16, out);
}

/* ---- the experts ---- */

static bool stacked(const vt_weight *w, int32_t n, int64_t bytes)
{
    const char *base = w[0].part[0]->data;
    for (int32_t e = 0; e < n; e++)
        if (w[e].dtype != w[0].dtype || w[e].n_parts != 1 ||
            (base && (const char *)w[e].part[0]->data != base + e * bytes))
            return false;
    return true;
}

bool moe_cuda_stacked(const vt_weight *w, int32_t n)
{
    return w->dtype == VT_BF16 && stacked(w, n, w->rows * w->cols * 2);
}

static bool readable(const vt_weight *w, int32_t n)
{
    if (w->dtype == VT_BF16)
        return w->cols % 8 == 0 && moe_cuda_stacked(w, n);
    return linear_quant_supports(w) && stacked(w, n, (int64_t)w->packed_bytes);
}

static bool linear_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_linear_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->x->row_stride % 8 == 0 &&
           a->down[0].cols % 8 == 0 && a->n_experts <= MOE_CUDA_EXPERTS &&
           readable(a->gate_up, a->n_experts) && readable(a->down, a->n_experts);
}

/* One of the two products: pieces of work, and the launch. */
typedef struct product_form {
    int64_t items;
    int32_t resident; /* 0: only its compilation tells */
    cuda_launch launch;
} product_form;

/* Weights in tiles. An expert has a slot of a token at most once. */
static product_form quant_product_of(const moe_linear_args *a, const vt_target *t, bool up,
                                     int64_t tokens, int64_t tiles)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int32_t rows = (int32_t)(up ? w->rows / 2 : w->rows), k = (int32_t)w->cols;
    int64_t slots = tokens < TILE ? tokens : TILE;
    linear_quant_form f = linear_quant_form_of(w, slots, true, false, t);
    if (f.tiles > 1 && f.resident > 1) /* x of its rows takes registers too */
        f.resident /= 2;
    int64_t items = tiles * vt_ceil_div(rows, up ? 8 : 16),
            room = (int64_t)t->sm_count * f.resident;
    return (product_form){
        .items = items,
        .resident = f.resident,
        .launch = {.spec = JIT_SPEC("moe_quant.cu", "moe_quant", {"type", (int32_t)w->dtype},
                                    {"k", k}, {"rows", rows}, {"warps", f.warps},
                                    {"stages", f.stages}, {"resident", f.resident},
                                    {"slots", f.slots}, {"tiles", f.tiles}, {"up", up},
                                    {"gelu", a->activation == VT_ACT_GELU_TANH},
                                    {"k_used", (int32_t)a->expert->dim[1]}),
                   .grid = {(uint32_t)(items < room ? items : room), 1, 1},
                   .threads = (uint32_t)f.warps * 32,
                   .shared_bytes = f.shared_bytes}};
}

static product_form product_of(const moe_linear_args *a, const vt_target *t, bool up,
                               int64_t tokens, int64_t tiles)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int32_t rows = (int32_t)(up ? w->rows / 2 : w->rows), k = (int32_t)w->cols;
    int32_t warps = k >= 1024 ? 8 : 4;
    if (w->dtype != VT_BF16)
        return quant_product_of(a, t, up, tokens, tiles);
    return (product_form){.items = tiles * vt_ceil_div(rows, up ? 8 : 16),
                          .launch = {.spec = JIT_SPEC("moe_expert.cu", "moe_expert", {"k", k},
                                                      {"rows", rows}, {"warps", warps}, {"up", up},
                                                      {"gelu", a->activation == VT_ACT_GELU_TANH},
                                                      {"k_used", (int32_t)a->expert->dim[1]}),
                                     .grid = {cuda_blocks(rows, up ? 8 : 16), (uint32_t)tiles, 1},
                                     .threads = (uint32_t)warps * 32}};
}

static vt_status run_product(const vt_lane *lane, const moe_linear_args *a,
                             const moe_expert_params *p, bool up, int64_t tiles)
{
    product_form f = product_of(a, lane->target, up, a->x->dim[0], tiles);
    return vt_cuda_launch(lane->cuda, &f.launch, p, sizeof *p);
}

void moe_cuda_linear_cut(const moe_linear_args *a, const vt_size *size, vt_cut *out)
{
    vt_cut_shape(out, "%lld tokens, %lld of %d experts, %lld x %lld",
                 (long long)vt_size_rows(a->x, size), (long long)a->expert->dim[1], a->n_experts,
                 (long long)a->y->dim[1], (long long)a->down[0].cols);
}

/* Four launches: the cut is that of gate and up, with the most tiles that routing can make. */
static void linear_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const moe_linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    product_form f = product_of(a, t, true, tokens,
                                most_tiles(tokens * a->expert->dim[1], a->n_experts));
    moe_cuda_linear_cut(a, size, out);
    out->tile[0] = TILE;
    out->tile[1] = 8;
    out->split = (int32_t)f.launch.threads / 32;
    vt_cut_roles(out, "sort by expert, gate and up, down, sum", "warps of a CTA, in rising order");
    vt_cut_cuda(out, t, f.items, &f.launch, 16);
    if (f.resident > 0) {
        out->resident = f.resident;
        out->waves = (double)out->items / ((double)out->workers * out->resident);
    }
}

static vt_status linear_run(const void *args, const vt_lane *lane)
{
    const moe_linear_args *a = args;
    vt_cuda_lane *l = lane->cuda;
    int32_t used = (int32_t)a->expert->dim[1], hidden = (int32_t)a->y->dim[1];
    int32_t ffn = (int32_t)a->down[0].cols;
    int64_t tokens = a->x->dim[0], slots = tokens * used, tiles = most_tiles(slots, a->n_experts);
    scratch s = scratch_of(slots, a->n_experts, hidden, ffn);
    char *w = lane->workspace;
    if (tokens == 0 && !l->collect)
        return VT_OK;
    if (s.bytes > lane->workspace_bytes && !l->collect) {
        return vt_fail(&l->err, VT_ERR_MEMORY,
                       "moe_linear: %lld slots need %zu bytes of workspace, there are %zu",
                       (long long)slots, s.bytes, lane->workspace_bytes);
    }
    moe_group_params g = {a->expert->data,           (int32_t *)(w + s.order),
                          (moe_tile *)(w + s.tiles), (int32_t *)(w + s.n_tiles),
                          (int32_t *)(w + s.count),  (int32_t)slots};
    vt_status status = vt_cuda_launch(
        l,
        &(cuda_launch){.spec = JIT_SPEC("moe_group.cu", "moe_group", {"experts", a->n_experts},
                                        {"tile", TILE}),
                       .grid = {1, 1, 1},
                       .threads = GROUP_THREADS},
        &g, sizeof g);
    moe_expert_params p = {.x = a->x->data,
                           .weights = a->gate_up[0].part[0]->data,
                           .order = g.order,
                           .n_tiles = g.n_tiles,
                           .tile = g.tile,
                           .route = a->weight->data,
                           .y = w + s.h,
                           .x_stride = (int32_t)a->x->row_stride};
    if (status == VT_OK)
        status = run_product(lane, a, &p, true, tiles);
    p.x = (const uint16_t *)(w + s.h);
    p.x_stride = ffn;
    p.weights = a->down[0].part[0]->data;
    p.y = w + s.part;
    if (status == VT_OK)
        status = run_product(lane, a, &p, false, tiles);
    moe_sum_params sum = {(const float *)(w + s.part), a->y->data, (int32_t)a->y->row_stride,
                          (int32_t)tokens};
    if (status == VT_OK)
        status = vt_cuda_launch(
            l,
            &(cuda_launch){.spec = JIT_SPEC("moe_sum.cu", "moe_sum", {"hidden", hidden},
                                            {"k_used", used}, {"accumulate", a->accumulate}),
                           .grid = {cuda_blocks(tokens * (hidden / 4), 256), 1, 1},
                           .threads = 256},
            &sum, sizeof sum);
    return status;
}

/* 0 where the kernels above cannot read this expert. Its other matrix has the same two sizes, so
 * they cannot read that one either, and moe_any.c reads both. */
static size_t experts_pack_bytes(const vt_weight *w)
{
    int64_t outputs = w->paired ? w->rows / 2 : w->rows;
    bool fits = outputs % 8 == 0 && w->n_experts <= MOE_CUDA_EXPERTS;
    return fits ? linear_cuda_pack_bytes(w) : 0;
}

static const vt_packing experts_packing = {.name = "tiles or bf16",
                                           .bytes = experts_pack_bytes,
                                           .unit = linear_cuda_pack_unit,
                                           .type = linear_cuda_pack_type,
                                           .write = linear_cuda_pack};

/* Bytes of the tiles beyond the file's, for the experts that the card counts. */
static vt_cost linear_extra(const void *args, const vt_batch *batch)
{
    const moe_linear_args *a = args;
    int64_t pairs = vt_batch_elems(a->expert, batch), more = 0;
    const vt_weight *w[2] = {a->gate_up, a->down};
    for (int i = 0; i < 2; i++)
        if (w[i]->dtype != VT_BF16)
            more += (int64_t)w[i]->packed_bytes -
                    w[i]->rows * vt_dtype_row_bytes(w[i]->dtype, w[i]->cols);
    return (vt_cost){.read.weights = more * (pairs < a->n_experts ? pairs : a->n_experts)};
}

const vt_impl moe_route_cuda_impl = {.name = "token",
                                     .device = VT_DEVICE_CUDA,
                                     .fixed_order = true,
                                     .supports = route_supports,
                                     .run = route_run,
                                     .describe = route_describe};
const vt_impl moe_linear_cuda_impl = {.name = "grouped",
                                      .device = VT_DEVICE_CUDA,
                                      .fixed_order = true,
                                      .supports = linear_supports,
                                      .run = linear_run,
                                      .describe = linear_describe,
                                      .packing = &experts_packing,
                                      .workspace = moe_cuda_workspace,
                                      .extra = linear_extra};
