/* linear on CUDA for weights in quantised tiles (linear_quant.h).
 *
 *   up to 4 tokens    quant_normed: linear_quant.cu makes the norm in front of the product, too
 *   up to 64 tokens   passes: linear_quant.cu for 32 tokens at a time; each pass reads all tiles
 *   more              panels: quant_panel.cu writes some rows of the weight as BF16 to the end of
 *                     the workspace, a GEMM for BF16 weights makes those columns of y, and so on
 *                     with the next rows; the GEMM may use the beginning of the workspace for its
 *                     split-K partials
 *   deterministic     passes for any number of tokens
 *
 * If a weight has b bytes, passes read b bytes per weight for each 32 tokens; a panel costs b + 2
 * bytes written + 2 bytes read. Counted in bytes, two passes are cheaper than a panel for every
 * type. In time they are about equal, because a pass of 32 tokens is bound by its arithmetic. H200,
 * gate+up of 8B as Q4_K, us: 71 for 32 tokens, 145 for 64, 164 for 128 in panels (BF16 weights: 73,
 * 65, 68). linear_quant_sm90.c dequantises as it goes. */
#include <stdio.h>

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/quant/linear_quant.h"
#include "ops/linear/linear_params.h"

enum {
    PASS_TOKENS = 32,
    MAX_WARPS = 8, /* in a CTA */
    SM_WARPS = 16,
    MAX_STAGES = 8,
    PADDED_CTAS = 5, /* with more CTAs on an SM, their requests are not padded (see below) */
    PANEL_ALIGN = 1024,
    PANEL_ROWS = 256,       /* a multiple of every GEMM's tile, so only the last tile is cut */
    PANEL_BYTES = 32 << 20, /* about as much as stays in L2 between the two kernels */
    PANEL_THREADS = 128
};

bool linear_quant_supports(const vt_weight *w)
{
    return linear_quant_type(w->dtype, w->cols) && w->packing &&
           w->packing->write == linear_cuda_pack &&
           (vt_dtype_get(w->dtype)->block == 1 || w->cols % vt_dtype_get(w->dtype)->block == 0);
}

/* The warps of a CTA take pairs of units in turn. Returns the number of warps, at most `most`, that
 * leaves the fewest of them idle in the last round. */
static int32_t warps_for(int64_t k, int32_t most)
{
    int32_t pairs = (int32_t)vt_ceil_div(k, 2 * QUANT_UNIT);
    return (int32_t)vt_ceil_div(pairs, vt_ceil_div(pairs, most));
}

/* The form of a launch that fills every SM with CTAs of 16 warps together, and with exactly these.
 * If more CTAs fitted, some CTAs of the next kernel would start early, on some SMs more than on
 * others. Each CTA has a fixed share of the work, so that kernel would end late (12 layers and head
 * of 8B as Q4_K, 1 token: 1.11 ms with room for twice as many CTAs, 0.77 ms without). So a CTA asks
 * for more shared memory than its rings need.
 *
 * The rings have 96 KB per SM. With 200 KB Q4_K's gate+up took 20.3 us instead of 17.8, its head
 * 92.6 instead of 89.5, and FP8 and Q6_K 1 to 7 % more (a graph of 48 calls without programmatic
 * launches), because loads that are needed later delay those that are needed first. The two
 * together, rings of 96 KB and the rest of the memory unused, have not been measured. */
linear_quant_form linear_quant_form_of(const vt_weight *w, int64_t tokens, int32_t most_warps,
                                       bool half, const vt_target *target)
{
    vt_dtype type = w->dtype;
    linear_quant_form f = {.warps = warps_for(w->cols, most_warps),
                           .tiles = tokens <= 8    ? 1
                                    : tokens <= 16 ? 2
                                                   : 4};
    f.slots = type == VT_FP8_E4M3 || tokens > 4 ? 1 : tokens > 2 ? 2 : 4;
    linear_traits tr = linear_traits_of(type);
    /* the types whose unpacking takes more registers */
    bool wide = tr.k ? tr.bits > 4 || tr.halves : tr.min;
    int32_t sm_warps = f.tiles == 4           ? SM_WARPS / 2 /* the registers allow no more */
                       : f.tiles == 2 && wide ? SM_WARPS * 3 / 4
                                              : SM_WARPS;
    f.resident = sm_warps / f.warps;
    int64_t stage = linear_quant_tile_bytes(type, 2 * QUANT_UNIT) * (half ? 1 : 2) * f.warps;
    int64_t stages = (int64_t)target->max_shared_bytes * 3 / 7 / f.resident / stage;
    f.stages = stages < 1 ? 1 : stages > MAX_STAGES ? MAX_STAGES : (int32_t)stages;
    int64_t alone = f.resident > PADDED_CTAS ? 0
                                             : target->max_shared_bytes / (f.resident + 1) + 1024;
    f.ring_bytes = (uint32_t)(f.stages * stage);
    f.shared_bytes = f.ring_bytes > alone ? f.ring_bytes : (uint32_t)alone;
    return f;
}

/* One pass over the weight: groups of its rows, dealt out to persistent CTAs. */
typedef struct pass_form {
    linear_quant_form quant;
    int32_t group_rows; /* outputs in a group */
    int64_t groups;
    cuda_launch launch;
} pass_form;

/* With `norm` the launch makes the norm too. x of its tokens then lies behind the rings, mostly in
 * memory that would be padding. */
static pass_form pass_form_of(const linear_args *a, const vt_target *t, int64_t tokens, bool norm)
{
    int32_t k = (int32_t)a->w->cols, pair = linear_pair(a), rows = linear_outputs(a);
    int32_t normed = norm ? linear_normed_tokens(tokens) : 0;
    int64_t sms = t->sm_count;
    bool half = !pair && vt_ceil_div(rows, 16) < sms;
    int32_t group_rows = pair || half ? 8 : 16;
    int64_t groups = vt_ceil_div(rows, group_rows);
    /* With many groups 4 warps per group fill the 16 of an SM. FP8, whose units take fewer
     * instructions, is faster with 8 all the same: 8B alone 2.59 to 2.53 ms a step. */
    bool many = 2 * groups >= 5 * sms && a->w->dtype != VT_FP8_E4M3;
    linear_quant_form f = linear_quant_form_of(a->w, tokens,
                                               many ? LINEAR_QUANT_FEW_WARPS : MAX_WARPS, half, t);
    int64_t room = sms * f.resident;
    uint32_t used = f.ring_bytes + (uint32_t)(normed * NORM_ROW(k, NORM_PAD) * 2);
    return (pass_form){
        .quant = f,
        .group_rows = group_rows,
        .groups = groups,
        .launch = {.spec = JIT_SPEC("linear_quant.cu", "linear_quant",
                                    LINEAR_QUANT_PARAMS(a->w->dtype), {"k", k}, {"warps", f.warps},
                                    {"tiles", f.tiles}, {"slots", f.slots}, {"stages", f.stages},
                                    {"resident", f.resident}, {"half", half}, {"pair", pair},
                                    {"out_f32", a->y->dtype == VT_F32}, {"bias", a->bias != NULL},
                                    {"residual", a->residual != NULL}, {"tokens", normed},
                                    {"plus_one", norm && a->plus_one}),
                   .grid = {(uint32_t)(groups < room ? groups : room), 1, 1},
                   .threads = (uint32_t)f.warps * 32,
                   .shared_bytes = used > f.shared_bytes ? used : f.shared_bytes}};
}

static vt_status run_pass(const linear_args *a, const vt_lane *lane)
{
    linear_params p = linear_params_of(a);
    pass_form f = pass_form_of(a, lane->target, a->x->dim[0], false);
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

vt_status linear_quant_normed_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    linear_params p = linear_normed_params_of(a);
    pass_form f = pass_form_of(a, lane->target, a->x->dim[0], true);
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

static void pass_describe(const linear_args *a, const vt_target *t, const vt_size *size, bool norm,
                          vt_cut *out)
{
    int64_t tokens = vt_size_rows(a->x, size);
    pass_form f = pass_form_of(a, t, tokens < PASS_TOKENS ? tokens : PASS_TOKENS, norm);
    linear_cut_pieces(a, size, PASS_TOKENS, out);
    out->tile[1] = f.group_rows;
    out->tile[2] = 2 * QUANT_UNIT;
    out->split = f.quant.warps;
    snprintf(out->merge, sizeof out->merge, "warps of a CTA, in rising order");
    vt_cut_cuda(out, t, f.groups, &f.launch, 16);
    out->resident = f.quant.resident;
    out->waves = (double)out->items / ((double)out->workers * out->resident);
}

void linear_quant_passes_describe(const void *args, const vt_target *t, const vt_size *size,
                                  vt_cut *out)
{
    pass_describe(args, t, size, false, out);
}

void linear_quant_normed_describe(const void *args, const vt_target *t, const vt_size *size,
                                  vt_cut *out)
{
    pass_describe(args, t, size, true, out);
    vt_cut_roles(out, "each CTA makes the norm", NULL);
}

/* ---- many tokens ---- */

static cuda_launch panel_launch_of(const linear_args *a, int32_t n)
{
    int32_t k = (int32_t)a->w->cols, halves = linear_pair(a) ? 2 : 1;
    return (cuda_launch){
        .spec = JIT_SPEC("quant_panel.cu", "quant_panel", LINEAR_QUANT_PARAMS(a->w->dtype),
                         {"k", k}),
        .grid = {cuda_blocks(k, 4 * QUANT_UNIT), cuda_blocks(n, QUANT_TILE), (uint32_t)halves},
        .threads = PANEL_THREADS};
}

/* Writes rows [at, at + n) of the weight (of both halves of a pair) as BF16 to `to`. */
static vt_status write_panel(const linear_args *a, const vt_lane *lane, int32_t at, int32_t n,
                             void *to)
{
    int64_t tile_bytes = linear_quant_tile_bytes(a->w->dtype, (int32_t)a->w->cols);
    const uint8_t *gate = (const uint8_t *)a->w->part[0]->data + at / QUANT_TILE * tile_bytes;
    quant_panel_params p = {
        {gate, gate + linear_quant_tiles(linear_outputs(a)) * tile_bytes}, to, n};
    cuda_launch l = panel_launch_of(a, n);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_tensor columns_of(const vt_tensor *t, int32_t at, int32_t n)
{
    vt_tensor s = *t;
    s.data = (char *)s.data + (size_t)at * (size_t)vt_dtype_get(s.dtype)->bytes;
    s.dim[s.rank - 1] = n;
    return s;
}

static vt_status run_panel(const linear_args *a, const vt_lane *lane, int32_t at, int32_t n,
                           void *panel)
{
    TRY(write_panel(a, lane, at, n, panel));
    int64_t rows = linear_pair(a) ? 2 * (int64_t)n : n;
    vt_tensor w = vt_tensor_2d(panel, VT_BF16, rows, a->w->cols), y = columns_of(a->y, at, n);
    vt_tensor bias = a->bias ? columns_of(a->bias, at, n) : y;
    vt_tensor residual = a->residual ? columns_of(a->residual, at, n) : y;
    vt_weight weight = {.part = {&w},
                        .n_parts = 1,
                        .paired = a->w->paired,
                        .rows = rows,
                        .cols = a->w->cols,
                        .dtype = VT_BF16};
    linear_args piece = *a;
    piece.w = &weight;
    piece.y = &y;
    piece.bias = a->bias ? &bias : NULL;
    piece.residual = a->residual ? &residual : NULL;
    piece.fresh = true;
    return linear_gemm_run(&piece, lane);
}

static size_t panel_row_bytes(const linear_args *a)
{
    return (size_t)a->w->cols * 2 * (linear_pair(a) ? 2 : 1);
}

/* The number of outputs that a panel makes: all panels have about equal size and fit into the
 * workspace. 0 if no panel fits. */
static int32_t panel_outputs(const linear_args *a, size_t workspace_bytes)
{
    int32_t rows = linear_outputs(a);
    size_t room = workspace_bytes / 2 < PANEL_BYTES ? workspace_bytes / 2 : PANEL_BYTES;
    int32_t most = (int32_t)(room / panel_row_bytes(a)) / PANEL_ROWS * PANEL_ROWS;
    if (most == 0)
        return 0;
    int32_t each = (int32_t)vt_ceil_div(rows, vt_ceil_div(rows, most));
    return (int32_t)vt_round_up((size_t)each, PANEL_ROWS);
}

vt_status linear_quant_panels_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    int32_t rows = linear_outputs(a), each = panel_outputs(a, lane->workspace_bytes);
    size_t whole = lane->workspace_bytes;
    if (a->x->dim[0] == 0)
        return VT_OK;
    if (each == 0)
        return vt_fail(&lane->cuda->err, VT_ERR_UNSUPPORTED,
                       "a workspace of %zu bytes does not hold %d rows of %lld columns as BF16",
                       whole, PANEL_ROWS, (long long)a->w->cols);
    vt_lane gemm = *lane; /* the panel lies after the part that the GEMM may use */
    gemm.workspace_bytes = (whole - (size_t)each * panel_row_bytes(a)) / PANEL_ALIGN * PANEL_ALIGN;
    vt_status status = VT_OK;
    for (int32_t at = 0; at < rows && status == VT_OK; at += each)
        status = run_panel(a, &gemm, at, rows - at < each ? rows - at : each,
                           (char *)lane->workspace + gemm.workspace_bytes);
    return status;
}

/* Panels run one after the other with two launches each. This describes the first launch of the
 * first panel. */
void linear_quant_panels_describe(const void *args, const vt_target *t, const vt_size *size,
                                  vt_cut *out)
{
    const linear_args *a = args;
    int32_t rows = linear_outputs(a), each = panel_outputs(a, linear_workspace_bytes(t));
    linear_cut_shape(a, size, out);
    if (each == 0)
        return;
    cuda_launch l = panel_launch_of(a, rows < each ? rows : each);
    out->tile[1] = each;
    snprintf(out->roles, sizeof out->roles, "%lld panels: to BF16, then a GEMM",
             (long long)vt_ceil_div(rows, each));
    vt_cut_grid(out, t, &l, 16);
}

vt_status linear_quant_passes_run(const void *args, const vt_lane *lane)
{
    return linear_in_pieces(args, lane, PASS_TOKENS, run_pass);
}

int64_t linear_quant_tiles_extra(const vt_weight *w)
{
    return (int64_t)w->packed_bytes - w->rows * vt_dtype_row_bytes(w->dtype, w->cols);
}

vt_cost linear_quant_passes_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const linear_args *a = args;
    int64_t passes = vt_ceil_div(vt_batch_rows(a->x, batch), PASS_TOKENS);
    if (passes == 0)
        return (vt_cost){0};
    return (vt_cost){.read.weights = linear_quant_tiles_extra(a->w) +
                                     (passes - 1) * (int64_t)a->w->packed_bytes};
}

vt_cost linear_quant_panels_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const linear_args *a = args;
    int64_t panel = 2 * a->w->rows * a->w->cols;
    if (vt_batch_rows(a->x, batch) == 0)
        return (vt_cost){0};
    return (vt_cost){.read.weights = linear_quant_tiles_extra(a->w) + panel,
                     .write.weights = panel};
}
