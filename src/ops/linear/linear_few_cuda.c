/* linear on CUDA for few tokens: the launches of linear_small.cu and linear_ordered.cu. */
#include "ops/linear/linear_cuda.h"

#include <stdio.h>

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_impl.h"
#include "ops/rmsnorm/rmsnorm_impls.h"

/* A weight has enough segments that, with tiles of 64 weight rows, at least ORDERED_CTAS CTAs
 * stream it, if its rows are long enough to give each of them two steps of 64 columns. A warp's
 * products wait for each other, which counts where a weight is small: such ones have segments for
 * twice as many. */
enum {
    ORDERED_CTAS = 99,
    ORDERED_CTAS_FEW = 198,
    FEW_WEIGHTS = 8 << 20,
    MAX_SEGMENTS = 8,
    ORDERED_TOKENS_MOST = 16
};

/* The small kernel uses hardly any shared memory, and the loads that it has in flight need places
 * in the L1. Where the driver chooses, an SM keeps the division that decode attention left, which
 * is nearly all shared memory. On an H200 (decode tokens/s; the driver's choice, then 12, 25, 50
 * and 100 % of the L1):
 *
 *   8B batch 1      235  254  255  254  195 [*]      8B batch 8    1,805  1,932  1,940  1,902
 *   0.6B batch 1  1,721 1,740 1,753 1,761 1,462 [*]  8B batch 16   3,005    -    3,195    -
 *
 * [*] all kernels were given 100 %. */
enum { SMALL_SHARED_PERCENT = 25 };

/* The number of tokens that linear_small.cu takes at once. With long rows its loop over K keeps so
 * many loads in flight that the registers have no room for four tiles of tokens. */
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
                           .scale = a->scale,
                           .eps = a->eps};
}

/* A group is 16 rows of the weight: 8 of gate and 8 of up for a pair, else 16 outputs; with `half`
 * 8 outputs, which gives twice as many groups. `warps` work on each of a CTA's groups. */
static cuda_launch few_launch(const linear_args *a, jit_spec spec, bool half, int32_t warps,
                              int32_t groups)
{
    bool pair = linear_pair(a) != 0;
    return (cuda_launch){
        .spec = spec,
        .grid = {cuda_blocks(linear_outputs(a), groups * (pair || half ? 8 : 16)), 1, 1},
        .threads = (uint32_t)(groups * warps) * 32};
}

/* How the CTAs of linear_small.cu divide a weight's groups of 16 rows (half: 8). */
typedef struct small_cut {
    int32_t warps, groups; /* of a group; of a CTA */
    bool half;
} small_cut;

/* Up to 8 tokens of o and down, which add a residual, get CTAs of 16 warps, each of which has an SM
 * to itself. With few of them, the next kernel's first CTAs find free SMs, and load their weights
 * meanwhile. A CTA has one group, or two where the SM with the most groups has no more of them so.
 * Not where short rows have more groups than two an SM: qkv of 8B (384 groups) so made a step of 8
 * sequences 4.16 ms, of 4.08. Whole steps of one sequence, ms (H200; groups x warps of a CTA):
 *
 *          groups in all   before   1 x 16   2 x 8   2 x 8, half
 *   0.6B        64          0.471    0.431   0.454     0.440
 *   1.7B       128          1.03     0.969   0.981     1.042
 *   4B         160          2.307    2.361   2.257     2.424
 *   8B         256          3.858    3.796   3.806     3.821
 *   14B        320          7.345    6.801   7.324     6.939
 *
 * Of eight sequences, before / as chosen: 0.640 / 0.639, 1.25 / 1.19, 2.512 / 2.467, 4.164 / 4.142,
 * 7.83 / 7.30. */
static small_cut small_cut_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    enum { LONG_ROW = 8192 };
    int64_t groups = vt_ceil_div(linear_outputs(a), 16), sms = t->sm_count;
    bool pair = linear_pair(a) != 0, wide = vt_ceil_div(a->w->cols, 32) > 48;
    if (wide && !pair && a->residual && tokens <= 8 && t->level >= 90 &&
        (groups <= 2 * sms || a->w->cols >= LONG_ROW))
        return vt_ceil_div(groups, sms) < 2 * vt_ceil_div(groups, 2 * sms)
                   ? (small_cut){.warps = 16, .groups = 1}
                   : (small_cut){.warps = 8, .groups = 2};
    return (small_cut){
        .warps = wide ? 8 : 4, .groups = 1, .half = !pair && linear_outputs(a) / 16 < t->sm_count};
}

static cuda_launch small_launch_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    small_cut c = small_cut_of(a, t, tokens);
    int32_t k = (int32_t)a->w->cols, tiles = tokens <= 8 ? 1 : tokens <= 16 ? 2 : 4;
    jit_spec spec = JIT_SPEC("linear_small.cu", "linear_small", {"k", k}, {"warps", c.warps},
                             {"groups", c.groups}, {"tiles", tiles}, {"half", c.half},
                             {"pair", linear_pair(a)}, {"out_f32", a->y->dtype == VT_F32},
                             {"bias", a->bias != NULL}, {"residual", a->residual != NULL});
    cuda_launch l = few_launch(a, spec, c.half, c.warps, c.groups);
    l.shared_percent = SMALL_SHARED_PERCENT;
    return l;
}

static vt_status run_small(const linear_args *a, const vt_lane *lane)
{
    linear_params p = linear_params_of(a);
    cuda_launch l = small_launch_of(a, lane->target, a->x->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

/* linear_normed.cu keeps all tokens' x in shared memory, and each of its CTAs makes the norm anew:
 * it reads (2 tokens + 4) K bytes for that, where its weights have 32 K. Steps of whole models with
 * it and without, ms, by the bytes of x (H200):
 *
 *   2, 4, 8 KiB   0.6B, 1, 2, 4 tokens   0.526 / 0.568   0.567 / 0.601   0.620 / 0.630
 *   4, 8 KiB      30B-A3B 1, 1.7B 2      2.48 / 2.50     1.134 / 1.142
 *   5, 8 KiB      4B 1, 8B 1             2.305 / 2.320   3.836 / 3.894
 *   10 KiB        14B 1, 4B 2            7.352 / 7.334   2.504 / 2.367
 *   16 KiB        1.7B 4, 8B 2           1.233 / 1.182   4.013 / 3.914 */
enum { NORMED_TOKENS = 4, NORMED_SHARED = 8 << 10 };

/* The same bound for linear_quant.cu, whose CTAs take several groups of rows. Beyond it nothing was
 * measured. */
enum { QUANT_NORMED_SHARED = 8 << 10 };

int32_t linear_normed_tokens(int64_t tokens)
{
    return tokens <= 1 ? 1 : tokens <= 2 ? 2 : NORMED_TOKENS;
}

bool linear_normed_fits(const linear_args *a, const vt_size *upto)
{
    if (!a->before || a->residual || a->norm->dtype != VT_F32 || a->before->dtype != VT_BF16 ||
        a->before->row_stride % 8 != 0)
        return false;
    int32_t most = a->w->dtype == VT_BF16 ? NORMED_SHARED : QUANT_NORMED_SHARED;
    int64_t tokens = vt_size_rows(a->x, upto);
    return tokens <= NORMED_TOKENS && linear_normed_tokens(tokens) * a->w->cols * 2 <= most;
}

static cuda_launch normed_launch_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    int32_t k = (int32_t)a->w->cols, warps = vt_ceil_div(k, 32) > 48 ? 8 : 4, pair = linear_pair(a);
    bool half = !pair && linear_outputs(a) / 16 < t->sm_count;
    jit_spec spec = JIT_SPEC("linear_normed.cu", "linear_normed", {"k", k}, {"warps", warps},
                             {"tokens", linear_normed_tokens(tokens)}, {"half", half},
                             {"pair", pair}, {"out_f32", a->y->dtype == VT_F32},
                             {"bias", a->bias != NULL}, {"plus_one", a->plus_one});
    cuda_launch l = few_launch(a, spec, half, warps, 1);
    l.shared_percent = SMALL_SHARED_PERCENT;
    return l;
}

int32_t linear_segments(const linear_args *a)
{
    int64_t tiles = vt_ceil_div(a->w->rows, 64), steps = vt_ceil_div(a->w->cols, 64);
    bool few = a->w->rows * a->w->cols <= FEW_WEIGHTS;
    int32_t n = 1, ctas = few ? ORDERED_CTAS_FEW : ORDERED_CTAS;
    while (n < MAX_SEGMENTS && tiles * n < ctas && steps >= 4 * n)
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

/* The chunks of a warp's ring: all of its segment, at most `most`, and rings that any GPU's shared
 * memory can hold. */
static int32_t ordered_slots(int32_t k, int32_t warps, int32_t slot_bytes, int32_t most)
{
    enum { RINGS = 96 << 10 };
    int32_t chunks = (int32_t)vt_ceil_div(vt_ceil_div(k, ORDERED_CHUNK), warps),
            room = RINGS / (warps * slot_bytes), slots = chunks < most ? chunks : most;
    return slots < room ? slots : room;
}

/* The lanes that share a row of rmsnorm.cu. */
static int32_t norm_lanes(int32_t cols)
{
    int32_t vectors = cols / 8, lanes = 1;
    if (vectors > 32)
        return rmsnorm_wide_threads(vectors);
    while (lanes < vectors)
        lanes *= 2;
    return lanes;
}

/* A CTA's warps make the norm of all columns, so there must not be too few of them for a long row.
 * Steps with the norm made so and by its own kernel, tokens/s (H200): qwen3-0.6b, a row for 1 or 2
 * warps, 1,594 and 1,446; qwen3-8b, for 8 and 16 warps, 211 and 240. */
bool linear_ordered_norms(const linear_args *a)
{
    enum { MOST_WARPS = 2 }; /* of rmsnorm.cu whose work a warp does */
    int32_t cols = (int32_t)a->w->cols;
    return cols % ORDERED_CHUNK == 0 && norm_lanes(cols) <= MOST_WARPS * 32 * linear_segments(a);
}

/* The launch of linear_ordered.cu: few tokens with the GEMMs' order of sums. */
static cuda_launch ordered_launch_of(const linear_args *a, const vt_target *t, int64_t tokens,
                                     bool norm)
{
    int32_t k = (int32_t)a->w->cols, warps = linear_segments(a), pair = linear_pair(a);
    int32_t tiles = tokens <= 8 ? 1 : 2;
    /* half as many rows per CTA if there are too few warps to keep memory busy */
    bool half = !pair && linear_outputs(a) / 16 * warps < 6 * t->sm_count;
    int32_t slot = ORDERED_SLOT_BYTES(half ? 8 : 16, norm ? 0 : tiles * 8), rows = 0;
    int32_t slots = ordered_slots(k, warps, slot, half ? 12 : 8);
    if (norm)
        rows = linear_normed_tokens(tokens);
    jit_spec spec = JIT_SPEC(
        "linear_ordered.cu", "linear_ordered", {"k", k}, {"warps", warps}, {"tiles", tiles},
        {"half", half}, {"slots", slots}, {"pair", pair}, {"out_f32", a->y->dtype == VT_F32},
        {"bias", a->bias != NULL}, {"residual", a->residual != NULL}, {"norm", norm},
        {"tokens", rows}, {"lanes", norm ? norm_lanes(k) : 0}, {"plus_one", norm && a->plus_one});
    cuda_launch l = few_launch(a, spec, half, warps, 1);
    l.shared_bytes = (uint32_t)(warps * slots * slot + (norm ? k * 4 : 0) +
                                rows * ORDERED_NORMED_BYTES(k));
    return l;
}

/* The launch of linear_normed.cu; in deterministic programs, of linear_ordered.cu with the norm. */
static cuda_launch any_normed_launch_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    return t->deterministic ? ordered_launch_of(a, t, tokens, true)
                            : normed_launch_of(a, t, tokens);
}

linear_params linear_normed_params_of(const linear_args *a)
{
    linear_params p = linear_params_of(a);
    p.x = a->before->data;
    p.x_stride = (int32_t)a->before->row_stride;
    p.norm = a->norm->data;
    return p;
}

vt_status linear_normed_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    linear_params p = linear_normed_params_of(a);
    cuda_launch l = any_normed_launch_of(a, lane->target, a->x->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status run_ordered(const linear_args *a, const vt_lane *lane)
{
    linear_params p = linear_params_of(a);
    cuda_launch l = ordered_launch_of(a, lane->target, a->x->dim[0], false);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

/* Describes a launch for up to `most` tokens, which is repeated until all tokens are computed. */
void linear_cut_pieces(const linear_args *a, const vt_size *size, int32_t most, vt_cut *out)
{
    int64_t tokens = vt_size_rows(a->x, size), pieces = vt_ceil_div(tokens, most);
    char roles[64] = "";
    if (pieces > 1)
        snprintf(roles, sizeof roles, "%lld launches of up to %d tokens", (long long)pieces, most);
    linear_cut_shape(a, size, out);
    out->tile[0] = (int32_t)(tokens < most ? tokens : most);
    vt_cut_roles(out, roles, NULL);
}

static void few_describe(const linear_args *a, const vt_target *t, const vt_size *size,
                         int32_t most, cuda_launch l, vt_cut *out)
{
    linear_cut_pieces(a, size, most, out);
    out->tile[1] = (int32_t)vt_ceil_div(linear_outputs(a), l.grid[0]);
    out->split = (int32_t)l.threads / 32;
    snprintf(out->merge, sizeof out->merge, "warps of a CTA, in rising order");
    vt_cut_grid(out, t, &l, 16);
}

static int64_t piece_of(const linear_args *a, const vt_size *size, int32_t most)
{
    int64_t tokens = vt_size_rows(a->x, size);
    return tokens < most ? tokens : most;
}

void linear_small_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    int32_t most = linear_small_tokens(args);
    int64_t tokens = piece_of(args, size, most);
    small_cut c = small_cut_of(args, t, tokens);
    few_describe(args, t, size, most, small_launch_of(args, t, tokens), out);
    out->split = c.warps;
    if (c.groups > 1)
        snprintf(out->roles, sizeof out->roles, "%d groups of %d warps", c.groups, c.warps);
}

void linear_normed_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    few_describe(a, t, size, NORMED_TOKENS, any_normed_launch_of(a, t, tokens), out);
    vt_cut_roles(out, "each CTA makes the norm", NULL);
}

void linear_ordered_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    int32_t most = ORDERED_TOKENS_MOST;
    few_describe(args, t, size, most, ordered_launch_of(args, t, piece_of(args, size, most), false),
                 out);
}

vt_status linear_small_run(const void *args, const vt_lane *lane)
{
    return linear_in_pieces(args, lane, linear_small_tokens(args), run_small);
}

vt_status linear_ordered_run(const void *args, const vt_lane *lane)
{
    return linear_in_pieces(args, lane, ORDERED_TOKENS_MOST, run_ordered);
}
