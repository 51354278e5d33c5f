/* The experts' linears on CUDA, for few tokens and before Hopper for any number (moe_sm90.c has the
 * others): three or four launches a layer.
 *
 *   moe_group   slots (token, j) sorted by expert; tiles of up to 16 slots of one expert
 *   moe_expert  gate and up, activation -> h [slots, ffn] bf16
 *   moe_expert  down, times the routing weight -> part [slots, hidden] fp32
 *               (moe_quant, either of them, where its weights are in quantised tiles)
 *   moe_sum     the slots of a token, in order
 *
 * One token: moe_token.cu, twice; its weights stream without a stop, and down sums.
 *
 * Few tokens need no moe_group: up to 16 tokens a CTA of moe_expert finds the slots of its tile
 * itself (moe_tiles.cuh), and for one token every slot is a tile of moe_quant. A slot's sums have
 * the same order either way.
 *
 * The grid has room for the most tiles that routing can make, so nothing waits for the host and a
 * graph serves every routing. Padding tokens have expert -1 and are in no tile: their number
 * changes no result and loads no weights. Expert weights lie one after the other: [experts, 2 ffn,
 * hidden] with gate before up, [experts, hidden, ffn]; tiles likewise, each expert a matrix.
 * Correct first: a tile reads its expert's weights whole, so a large prefill reads them tokens *
 * used / (16 experts) times over. */
#include "ops/moe/moe_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/quant/linear_quant.h"
#include "ops/moe/moe.h"
#include "ops/moe/moe_params.h"

enum {
    TILE = 16,           /* slots of a tile; moe_tiles.cuh has the same number */
    FEW_TOKENS = 16,     /* moe_expert finds tiles itself, likewise ... */
    FEW_USED = 16,       /* ... where a token has at most this many experts; */
    FEW_QUANT_USED = 32, /* moe_quant.cu a single token with this many */
    TOKEN_WARPS = 8,     /* warps of a CTA of moe_token.cu, */
    TOKEN_RESIDENT = 2,  /* and CTAs of an SM; with one, models took 3 to 5 % longer */
    WAVE_WARPS = 16,     /* of a CTA of its second product, where an SM has one CTA at most */
    GROUP_THREADS = 256,
    SUM_THREADS = 256
};

/* The most tiles of up to `width` slots that routing can make. */
static int64_t most_tiles(int64_t slots, int32_t experts, int32_t width)
{
    int64_t ragged = slots < experts ? slots : experts;
    return ragged + slots / width;
}

static size_t take(size_t *at, int64_t n, size_t size)
{
    size_t here = *at;
    *at = vt_round_up(here + (size_t)n * size, 256);
    return here;
}

moe_cuda_scratch moe_cuda_scratch_of(const moe_linear_args *a, int64_t tokens)
{
    int64_t slots = tokens * a->expert->dim[1];
    moe_cuda_scratch s;
    size_t at = 0;
    s.order = take(&at, slots, 4);
    s.tiles = take(&at, most_tiles(slots, a->n_experts, TILE), sizeof(moe_tile));
    s.n_tiles = take(&at, 1, 4);
    s.h = take(&at, slots * a->down[0].cols, 2);
    s.part = take(&at, slots * a->y->dim[1], 4);
    s.bytes = at;
    return s;
}

size_t moe_cuda_workspace(const void *args, const vt_target *t)
{
    return moe_cuda_scratch_of(args, t->limits.max_tokens).bytes;
}

vt_status moe_cuda_check_workspace(const moe_linear_args *a, const vt_lane *lane)
{
    size_t need = moe_cuda_scratch_of(a, a->x->dim[0]).bytes;
    if (need <= lane->workspace_bytes || lane->cuda->collect)
        return VT_OK;
    return vt_fail(&lane->cuda->err, VT_ERR_MEMORY,
                   "moe_linear: %lld tokens need %zu bytes of workspace, there are %zu",
                   (long long)a->x->dim[0], need, lane->workspace_bytes);
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

bool moe_cuda_tiled(const vt_weight *w, int32_t n)
{
    return linear_quant_supports(w) && stacked(w, n, (int64_t)w->packed_bytes);
}

static bool readable(const vt_weight *w, int32_t n)
{
    if (w->dtype == VT_BF16)
        return w->cols % 8 == 0 && moe_cuda_stacked(w, n);
    return moe_cuda_tiled(w, n);
}

/* How a call of this many tokens runs. */
typedef struct call_form {
    int64_t tokens, slots, tiles; /* tiles: CTAs or work items for each group of output rows */
    bool sorted;                  /* moe_group runs */
} call_form;

/* The most tokens that need no sorting: moe_expert takes FEW_TOKENS, moe_quant a single one. */
static int64_t unsorted_tokens(const moe_linear_args *a)
{
    bool up = a->gate_up->dtype == VT_BF16, down = a->down->dtype == VT_BF16;
    if (a->expert->dim[1] > (up || down ? FEW_USED : FEW_QUANT_USED))
        return 0;
    return up && down ? FEW_TOKENS : 1;
}

static call_form form_of(const moe_linear_args *a, int64_t tokens)
{
    call_form f = {.tokens = tokens,
                   .slots = tokens * a->expert->dim[1],
                   .sorted = tokens > unsorted_tokens(a)};
    f.tiles = f.sorted ? most_tiles(f.slots, a->n_experts, TILE) : f.slots;
    return f;
}

/* Outputs of a product, and how many of them a group has. */
static int64_t product_rows(const moe_linear_args *a, bool up)
{
    return up ? a->down->cols : a->down->rows;
}
static int64_t product_groups(const moe_linear_args *a, bool up)
{
    return vt_ceil_div(product_rows(a, up), up && moe_gated(a) ? 8 : 16);
}

/* Grids and slot numbers are 32-bit. */
static bool grids_fit(const moe_linear_args *a, int64_t tokens)
{
    call_form f = form_of(a, tokens);
    return f.slots <= INT32_MAX && f.tiles * product_groups(a, true) <= INT32_MAX &&
           f.tiles * product_groups(a, false) <= INT32_MAX;
}

/* Rows of biases lie one behind the other. */
static bool bias_fits(const vt_tensor *t)
{
    return t->dtype == VT_F32 && t->row_stride == t->dim[1];
}

bool moe_cuda_knows(const moe_linear_args *a)
{
    return (a->activation <= VT_ACT_CLAMPED || !moe_gated(a)) && a->x->dtype == VT_BF16 &&
           a->y->dtype == VT_BF16 && (!a->bias || bias_fits(a->bias)) &&
           (!a->down_bias || bias_fits(a->down_bias));
}

static bool linear_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t;
    const moe_linear_args *a = args;
    return moe_cuda_knows(a) && a->x->row_stride % 8 == 0 && a->down[0].cols % 8 == 0 &&
           a->n_experts <= MOE_CUDA_EXPERTS && readable(a->gate_up, a->n_experts) &&
           readable(a->down, a->n_experts) && (!upto || grids_fit(a, upto->tokens));
}

/* One of the two products: pieces of work, and the launch. */
typedef struct product_form {
    int64_t items;
    int32_t resident; /* 0: only its compilation tells */
    cuda_launch launch;
} product_form;

/* The product for weights in quantised tiles. A token has at most one slot in a tile. */
static product_form quant_product_of(const moe_linear_args *a, const vt_target *t, bool up,
                                     const call_form *c)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int64_t slots = c->tokens < TILE ? c->tokens : TILE;
    linear_quant_form f = linear_quant_form_of(w, slots, LINEAR_QUANT_FEW_WARPS, false, t);
    if (f.tiles > 1 && f.resident > 1) /* x of its rows takes registers too */
        f.resident /= 2;
    int64_t items = c->tiles * product_groups(a, up), room = (int64_t)t->sm_count * f.resident;
    return (product_form){
        .items = items,
        .resident = f.resident,
        .launch = {.spec = JIT_SPEC("moe_quant.cu", "moe_quant", LINEAR_QUANT_PARAMS(w->dtype),
                                    {"k", (int32_t)w->cols}, {"rows", (int32_t)product_rows(a, up)},
                                    {"warps", f.warps}, {"stages", f.stages},
                                    {"resident", f.resident}, {"slots", f.slots},
                                    {"tiles", f.tiles}, {"up", up}, {"act", a->activation},
                                    {"k_used", (int32_t)a->expert->dim[1]}, {"sorted", c->sorted},
                                    {"bias", moe_cuda_bias(a, up)}),
                   .grid = {(uint32_t)(items < room ? items : room), 1, 1},
                   .threads = (uint32_t)f.warps * 32,
                   .shared_bytes = f.shared_bytes}};
}

static product_form product_of(const moe_linear_args *a, const vt_target *t, bool up,
                               const call_form *c)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int32_t k = (int32_t)w->cols, warps = k >= 1024 ? 8 : 4;
    int32_t columns = c->tokens <= TILE / 2 ? TILE / 2 : TILE; /* a token has one slot in a tile */
    int64_t items = c->tiles * product_groups(a, up);
    if (w->dtype != VT_BF16)
        return quant_product_of(a, t, up, c);
    return (product_form){
        .items = items,
        .launch = {.spec = JIT_SPEC("moe_expert.cu", "moe_expert", {"k", k},
                                    {"rows", (int32_t)product_rows(a, up)}, {"warps", warps},
                                    {"up", up}, {"act", a->activation},
                                    {"k_used", (int32_t)a->expert->dim[1]}, {"sorted", c->sorted},
                                    {"tiles", columns / 8}, {"bias", moe_cuda_bias(a, up)}),
                   .grid = {(uint32_t)items, 1, 1},
                   .threads = (uint32_t)warps * 32}};
}

static vt_status run_product(const vt_lane *lane, const moe_linear_args *a,
                             const moe_expert_params *p, bool up, const call_form *c)
{
    product_form f = product_of(a, lane->target, up, c);
    return vt_cuda_launch(lane->cuda, &f.launch, p, sizeof *p);
}

void moe_cuda_linear_cut(const moe_linear_args *a, const vt_size *size, vt_cut *out)
{
    vt_cut_shape(out, "%lld tokens, %lld of %d experts, %lld x %lld",
                 (long long)vt_size_rows(a->x, size), (long long)a->expert->dim[1], a->n_experts,
                 (long long)a->y->dim[1], (long long)a->down[0].cols);
}

/* ---- one token ---- */

/* moe_token.cu takes a single token with weights in BF16. */
static bool is_token(const moe_linear_args *a, int64_t tokens)
{
    return tokens == 1 && a->gate_up->dtype == VT_BF16 && a->down->dtype == VT_BF16 &&
           a->expert->dim[1] <= FEW_USED;
}

/* The second product has a CTA for each 16 rows. Where these are one wave of the SMs, twice the
 * warps keep twice the bytes under way (H200: GLM-4.7-Flash 328 to 338 tokens/s). Where they are
 * more, two smaller CTAs share an SM (Kimi Linear's 144 lose 4 % with 16 warps). */
static product_form token_product_of(const moe_linear_args *a, const vt_target *t, bool up)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int64_t items = product_groups(a, up), ctas = items;
    bool wave = !up && items <= t->sm_count;
    int32_t k = (int32_t)w->cols, warps = k >= 1024 ? 8 : 4;
    int32_t sets = (wave ? WAVE_WARPS : TOKEN_WARPS) / warps;
    int32_t used = (int32_t)a->expert->dim[1];
    if (up) { /* a CTA's sets take a unit each */
        int64_t room = (int64_t)t->sm_count * TOKEN_RESIDENT;
        items = vt_ceil_div(items * used, sets);
        ctas = items < room ? items : room;
    }
    return (product_form){
        .items = items,
        .resident = wave ? 1 : TOKEN_RESIDENT,
        .launch = {.spec = JIT_SPEC("moe_token.cu", "moe_token", {"k", k},
                                    {"rows", (int32_t)product_rows(a, up)}, {"warps", warps},
                                    {"sets", sets}, {"up", up}, {"act", a->activation},
                                    {"k_used", used}, {"bias", moe_cuda_bias(a, up)},
                                    {"accumulate", !up && a->accumulate}),
                   .grid = {(uint32_t)ctas, 1, 1},
                   .threads = (uint32_t)(warps * sets) * 32}};
}

static vt_status run_token(const vt_lane *lane, const moe_linear_args *a,
                           const moe_expert_params *up, const moe_expert_params *down)
{
    product_form f = token_product_of(a, lane->target, true),
                 g = token_product_of(a, lane->target, false);
    TRY(vt_cuda_launch(lane->cuda, &f.launch, up, sizeof *up));
    return vt_cuda_launch(lane->cuda, &g.launch, down, sizeof *down);
}

/* There are several launches; the cut describes gate and up, with the most tiles that routing can
 * make. */
static void linear_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const moe_linear_args *a = args;
    call_form c = form_of(a, vt_size_rows(a->x, size));
    bool token = is_token(a, c.tokens);
    product_form f = token ? token_product_of(a, t, true) : product_of(a, t, true, &c);
    moe_cuda_linear_cut(a, size, out);
    out->tile[0] = TILE;
    out->tile[1] = 8;
    out->split = (int32_t)f.launch.threads / 32;
    vt_cut_roles(out,
                 token      ? "gate and up, down"
                 : c.sorted ? "sort by expert, gate and up, down, sum"
                            : "gate and up, down, sum",
                 "warps of a CTA, in rising order");
    vt_cut_cuda(out, t, f.items, &f.launch, 16);
    if (f.resident > 0) {
        out->resident = f.resident;
        out->waves = (double)out->items / ((double)out->workers * out->resident);
    }
}

vt_status moe_cuda_run_group(const moe_linear_args *a, const vt_lane *lane, int32_t width,
                             int32_t threads)
{
    int64_t slots = a->x->dim[0] * a->expert->dim[1];
    moe_cuda_scratch s = moe_cuda_scratch_of(a, a->x->dim[0]);
    char *w = lane->workspace;
    moe_group_params g = {.expert = a->expert->data,
                          .order = (int32_t *)(w + s.order),
                          .tile = (moe_tile *)(w + s.tiles),
                          .n_tiles = (int32_t *)(w + s.n_tiles),
                          .n_slots = (int32_t)slots,
                          .n_room = (int32_t)most_tiles(slots, a->n_experts, width)};
    cuda_launch launch = {.spec = JIT_SPEC("moe_group.cu", "moe_group", {"experts", a->n_experts},
                                           {"tile", width}, {"threads", threads}),
                          .grid = {(uint32_t)a->n_experts, 1, 1},
                          .threads = (uint32_t)threads};
    return vt_cuda_launch(lane->cuda, &launch, &g, sizeof g);
}

static vt_status run_sum(vt_cuda_lane *l, const moe_linear_args *a, int64_t tokens,
                         const float *part)
{
    int32_t hidden = (int32_t)a->y->dim[1];
    moe_sum_params p = {part, a->expert->data, a->y->data, (int32_t)a->y->row_stride};
    cuda_launch launch = {.spec = JIT_SPEC("moe_sum.cu", "moe_sum", {"hidden", hidden},
                                           {"k_used", (int32_t)a->expert->dim[1]},
                                           {"threads", SUM_THREADS}, {"accumulate", a->accumulate}),
                          .grid = {(uint32_t)tokens, cuda_blocks(hidden, 4 * SUM_THREADS), 1},
                          .threads = SUM_THREADS};
    return vt_cuda_launch(l, &launch, &p, sizeof p);
}

static vt_status linear_run(const void *args, const vt_lane *lane)
{
    const moe_linear_args *a = args;
    vt_cuda_lane *l = lane->cuda;
    call_form c = form_of(a, a->x->dim[0]);
    moe_cuda_scratch s = moe_cuda_scratch_of(a, c.tokens);
    char *w = lane->workspace;
    if (c.tokens == 0 && !l->collect)
        return VT_OK;
    TRY(moe_cuda_check_workspace(a, lane));
    moe_expert_params up = {.x = a->x->data,
                            .weights = a->gate_up[0].part[0]->data,
                            .order = (const int32_t *)(w + s.order),
                            .n_tiles = (const int32_t *)(w + s.n_tiles),
                            .tile = (const moe_tile *)(w + s.tiles),
                            .expert = a->expert->data,
                            .route = a->weight->data,
                            .y = w + s.h,
                            .x_stride = (int32_t)a->x->row_stride,
                            .n_slots = (int32_t)c.slots,
                            MOE_EXPERT_EXTRAS(a)};
    moe_expert_params down = up;
    down.x = (const uint16_t *)(w + s.h);
    down.x_stride = (int32_t)a->down[0].cols;
    down.weights = a->down[0].part[0]->data;
    down.bias = a->down_bias ? a->down_bias->data : NULL;
    down.y = w + s.part;
    if (is_token(a, c.tokens)) {
        down.y = a->y->data;
        return run_token(lane, a, &up, &down);
    }
    vt_status status = c.sorted ? moe_cuda_run_group(a, lane, TILE, GROUP_THREADS) : VT_OK;
    if (status == VT_OK)
        status = run_product(lane, a, &up, true, &c);
    if (status == VT_OK)
        status = run_product(lane, a, &down, false, &c);
    return status == VT_OK ? run_sum(l, a, c.tokens, (const float *)(w + s.part)) : status;
}

/* 0 if the kernels above cannot read this expert. Its other matrix has the same two sizes, so they
 * cannot read that one either, and the kernels of moe_any.c read both. */
static size_t experts_pack_bytes(const vt_weight *w)
{
    int64_t outputs = w->paired ? w->rows / 2 : w->rows;
    bool fits = outputs % 8 == 0 && w->n_experts <= MOE_CUDA_EXPERTS;
    return fits ? linear_cuda_pack_bytes(w) : 0;
}

const vt_packing moe_cuda_packing = {.name = "tiles or bf16",
                                     .bytes = experts_pack_bytes,
                                     .unit = linear_cuda_pack_unit,
                                     .type = linear_cuda_pack_type,
                                     .write = linear_cuda_pack};

vt_cost moe_cuda_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const moe_linear_args *a = args;
    int64_t pairs = moe_own_pairs(a, vt_batch_elems(a->expert, batch)), more = 0;
    const vt_weight *w[2] = {a->gate_up, a->down};
    for (int i = 0; i < 2; i++)
        if (w[i]->dtype != VT_BF16)
            more += (int64_t)w[i]->packed_bytes -
                    w[i]->rows * vt_dtype_row_bytes(w[i]->dtype, w[i]->cols);
    return (vt_cost){.read.weights = more * (pairs < a->n_experts ? pairs : a->n_experts)};
}

const vt_impl moe_linear_cuda_impl = {CUDA_ROW("grouped", linear, linear_supports),
                                      .fixed_order = true, .packing = &moe_cuda_packing,
                                      .workspace = moe_cuda_workspace, .extra = moe_cuda_extra};
