/* The launch of linear_quant_sm90.cu: weights in quantised tiles for tens of tokens on Hopper. It
 * makes each weight BF16 once for up to 128 tokens, where passes (linear_quant_cuda.c) do so for 32
 * and panels write BF16 to memory.
 *
 * A CTA has 128 weight rows, or 192 of more than 64 tokens where the SM with the most work then
 * ends earlier: three warpgroups take little longer for a step than two, because they wait for x
 * and for each other's registers less often. K is split over the CTAs of a cluster until there is
 * one for each SM, and once more where that evens out what the SMs get. The sums of a wide tile
 * cost too much for more than two parts.
 *
 * linear_quant_sm90_suits() has the types, sizes and tokens for which it was measured faster than
 * passes and panels: bench/notes/cuda.md, "Dequantised into wgmma's registers". */
#include "ops/linear/linear_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/quant/linear_quant.h"

enum {
    GROUP_ROWS = 64, /* weight rows of a warpgroup */
    FEW_GROUPS = 2,
    MANY_GROUPS = 3,
    N_WIDTHS = 3,
    LEAST_TOKENS = 17,
    WIDE_TOKENS = 128,
    MOST_TOKENS = 256,
    MAX_SPLIT = 8,
    MAX_SPLIT_WIDE = 2,
    LEAST_PAIRS = 4, /* steps of 256 columns in each part of K */
    MAX_STAGES = 6,
    X_STAGES = 3,
    STATIC_SHARED = 1024, /* barriers, and what the system takes of each CTA */
    SHARED_SLACK = 1024
};
/* Tokens of a tile. */
static const int32_t kWidth[N_WIDTHS] = {32, 64, 128};

static int32_t width_of(int64_t tokens)
{
    int i = 0;
    while (i < N_WIDTHS - 1 && tokens > kWidth[i])
        i++;
    return kWidth[i];
}

/* How a call runs with tiles of `width` tokens. */
typedef struct quant_sm90_form {
    int32_t width, groups, split, resident; /* resident: CTAs per SM */
    cuda_launch launch;
} quant_sm90_form;

/* Returns the share of the SMs' time that is used if each CTA takes as long as every other. */
static double share_used(int64_t ctas, const vt_target *t)
{
    return (double)ctas / (double)(vt_ceil_div(ctas, t->sm_count) * t->sm_count);
}

static int32_t split_of(const linear_args *a, const vt_target *t, int64_t tiles, int32_t width)
{
    int64_t pairs = vt_ceil_div(a->w->cols, 2 * QUANT_UNIT);
    int32_t split = 1, most = width < WIDE_TOKENS ? MAX_SPLIT : MAX_SPLIT_WIDE;
    while (split < most && pairs >= 2 * LEAST_PAIRS * split &&
           (tiles * split < t->sm_count ||
            share_used(2 * tiles * split, t) > share_used(tiles * split, t)))
        split *= 2;
    return split;
}

/* How a weight is cut: warpgroups of a CTA, parts of K, and CTAs. */
typedef struct quant_sm90_cut {
    int32_t groups, split;
    int64_t ctas;
} quant_sm90_cut;

static quant_sm90_cut cut_in(const linear_args *a, const vt_target *t, int64_t tokens,
                             int32_t groups)
{
    int32_t width = width_of(tokens), rows = GROUP_ROWS * groups;
    int64_t tiles = vt_ceil_div(linear_outputs(a), linear_pair(a) ? rows / 2 : rows) *
                    vt_ceil_div(tokens, width);
    int32_t split = split_of(a, t, tiles, width);
    /* parts that even out nothing cost their sums: 56 us became 64 for gate+up of an 8B model */
    if (groups == MANY_GROUPS && split == 2 && share_used(tiles, t) >= share_used(2 * tiles, t))
        split = 1;
    return (quant_sm90_cut){groups, split, tiles * split};
}

/* Returns what the SM with the most CTAs takes, one CTA after the other, in tenths of a step of a
 * CTA with two groups. */
static int64_t time_of(const linear_args *a, const vt_target *t, const quant_sm90_cut *c)
{
    enum { FEW_TIME = 10, MANY_TIME = 13 }; /* measured: 1.13 to 1.32 times as long */
    int64_t steps = vt_ceil_div(vt_ceil_div(a->w->cols, 2 * QUANT_UNIT), c->split);
    return vt_ceil_div(c->ctas, t->sm_count) * steps *
           (c->groups == MANY_GROUPS ? MANY_TIME : FEW_TIME);
}

static quant_sm90_cut cut_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    quant_sm90_cut few = cut_in(a, t, tokens, FEW_GROUPS);
    if (width_of(tokens) < WIDE_TOKENS)
        return few;
    quant_sm90_cut many = cut_in(a, t, tokens, MANY_GROUPS);
    return time_of(a, t, &many) < time_of(a, t, &few) ? many : few;
}

/* The stages of shared memory: x_units units of x in each of x_stages, two units of weights in each
 * of the others. */
typedef struct quant_sm90_stages {
    int32_t x_units, x_stages, stages;
    int64_t bytes;
} quant_sm90_stages;

static quant_sm90_stages stages_of(int64_t room, int64_t x_unit, int64_t pair, bool two)
{
    quant_sm90_stages s = {.x_units = two ? 2 : 1, .x_stages = two ? 2 : X_STAGES};
    int64_t stages = (room - s.x_units * s.x_stages * x_unit) / pair;
    if (two && stages < s.x_stages) /* a pair of weights is asked for as often as one of x */
        return stages_of(room, x_unit, pair, false);
    if (stages < 2) {
        s.x_stages--;
        stages = (room - s.x_stages * x_unit) / pair;
    }
    s.stages = stages > MAX_STAGES ? MAX_STAGES : (int32_t)stages;
    s.bytes = s.x_units * s.x_stages * x_unit + s.stages * pair;
    return s;
}

static quant_sm90_form form_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    int32_t width = width_of(tokens), resident = width <= 64 ? 2 : 1;
    quant_sm90_cut cut = cut_of(a, t, tokens);
    int64_t room = ((int64_t)t->max_shared_bytes + STATIC_SHARED) / resident - STATIC_SHARED -
                   SHARED_SLACK;
    quant_sm90_stages s = stages_of(room, (int64_t)width * 2 * QUANT_UNIT,
                                    linear_quant_tile_bytes(a->w->dtype, 2 * QUANT_UNIT) *
                                        cut.groups * GROUP_ROWS / QUANT_TILE,
                                    resident > 1);
    return (quant_sm90_form){
        .width = width,
        .groups = cut.groups,
        .split = cut.split,
        .resident = resident,
        .launch = {.spec = JIT_SPEC("linear_quant_sm90.cu", "linear_quant_sm90",
                                    LINEAR_QUANT_PARAMS(a->w->dtype), {"k", (int32_t)a->w->cols},
                                    {"tokens", width}, {"groups", cut.groups}, {"split", cut.split},
                                    {"stages", s.stages}, {"x_stages", s.x_stages},
                                    {"x_units", s.x_units}, {"pair", linear_pair(a)},
                                    {"bias", a->bias != NULL}, {"residual", a->residual != NULL},
                                    {"out_f32", a->y->dtype == VT_F32}),
                   .grid = {(uint32_t)cut.ctas, 1, 1},
                   .cluster = (uint32_t)cut.split,
                   .threads = 128 * ((uint32_t)cut.groups + 1),
                   .shared_bytes = (uint32_t)s.bytes + SHARED_SLACK}};
}

bool linear_quant_sm90_fits(const linear_args *a, const vt_target *t, int64_t tokens)
{
    return linear_sm90_fits(a, t) && a->w->cols % QUANT_UNIT == 0 && linear_outputs(a) % 4 == 0 &&
           tokens <= MOST_TOKENS;
}

/* The most tokens for which this row was measured to be faster than the others, by type and number
 * of elements; 0: it was not. Smaller weights were not measured. Panels are better for 129 tokens
 * and more of all but large weights, unless these fill the SMs in tiles of 192 rows. Q2_K and Q3_K
 * were measured up to 64 tokens. */
static int64_t most_tokens(vt_dtype type, int64_t elements)
{
    enum { LEAST = 16 << 20, LARGE = 48 << 20 };
    if (elements < LEAST)
        return 0;
    switch (type) {
    case VT_FP8_E4M3:
    case VT_Q8_0:
    case VT_Q4_0:
    case VT_Q5_0:
    case VT_Q4_K:
    case VT_Q6_K:
    case VT_MXFP4:
        return elements < LARGE ? WIDE_TOKENS : MOST_TOKENS;
    case VT_Q2_K:
    case VT_Q3_K:
        return 64;
    default:
        return 0;
    }
}

bool linear_quant_sm90_suits(const linear_args *a, const vt_target *t, int64_t tokens)
{
    int64_t most = most_tokens(a->w->dtype, a->w->rows * a->w->cols);
    if (tokens < LEAST_TOKENS || tokens <= most || most < WIDE_TOKENS)
        return tokens >= LEAST_TOKENS && tokens <= most;
    return tokens <= MOST_TOKENS && cut_of(a, t, tokens).groups == MANY_GROUPS;
}

static vt_status launch(const linear_args *a, const vt_lane *lane, int64_t tokens)
{
    linear_params p = linear_params_of(a);
    quant_sm90_form f = form_of(a, lane->target, tokens);
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

vt_status linear_quant_sm90_run(const void *args, const vt_lane *lane)
{
    /* the most tokens of each form that form_of() distinguishes */
    static const int32_t kMost[] = {32, 64, 128, MOST_TOKENS};
    const linear_args *a = args;
    int64_t tokens = a->x->dim[0];
    if (tokens == 0)
        return VT_OK;
    for (size_t i = 0; lane->cuda->collect && i < sizeof kMost / sizeof *kMost; i++)
        TRY(launch(a, lane, kMost[i]));
    return launch(a, lane, tokens);
}

void linear_quant_sm90_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const linear_args *a = args;
    quant_sm90_form f = form_of(a, t, vt_size_rows(a->x, size));
    linear_cut_shape(a, size, out);
    out->tile[0] = f.width;
    out->tile[1] = f.groups * GROUP_ROWS;
    out->tile[2] = 2 * QUANT_UNIT;
    out->split = f.split;
    vt_cut_roles(out,
                 f.groups == MANY_GROUPS
                     ? "1 producer warpgroup, 3 warpgroups that dequantise and multiply"
                     : "1 producer warpgroup, 2 warpgroups that dequantise and multiply",
                 f.split > 1 ? "cluster, in rising order" : NULL);
    vt_cut_grid(out, t, &f.launch, 16);
    out->resident = f.resident;
    out->waves = (double)out->items / ((double)out->workers * out->resident);
}

/* Further tiles of tokens read the weight again, mostly from L2; that is not counted. */
vt_cost linear_quant_sm90_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const linear_args *a = args;
    if (vt_batch_rows(a->x, batch) == 0)
        return (vt_cost){0};
    return (vt_cost){.read.weights = linear_quant_tiles_extra(a->w)};
}
