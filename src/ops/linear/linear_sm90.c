/* The launches of gemm_sm90.cu and gemm_split_sm90.cu: the choice between them, their tiles, stages
 * and tensor maps.
 *
 * For hundreds of tokens the persistent kernel runs. A small model chooses the width BN of a tile:
 * a CTA's time is its number of tiles (a wave is one tile on every SM) times the cost of a tile.
 * That cost grows with BN, but less than in proportion, because a wgmma of 256 columns reads A once
 * where two of 128 read it twice. Measured on an H200 at 8192 x 6144 x 4096: 465, 720, 738 TFLOP/s
 * for BN 64, 128, 256.
 *
 * For tens of tokens memory bandwidth decides, so enough SMs must stream weights. K is split, into
 * a power of two of at most 8 parts, until there are CTAs for three quarters of the SMs. Splitting
 * further only adds sums to exchange. Up to 64 tokens the split kernel wins for every shape; up to
 * 256 tokens it wins where the persistent kernel would leave most SMs idle. Microseconds on an H200
 * in chains of launches over weights larger than L2, persistent (its best width) / split 1, 2, 4,
 * 8:
 *
 *   64 x 6144 x 4096             26.0 / 22.3  19.0  20.6  25.9     96 tiles: 2
 *   64 x 4096 x 4096             23.2 / 19.1  13.5  16.1  18.7     64 tiles: 2
 *   64 x 24576 x 4096 SwiGLU     77.5 / 59.2  56.7  68.4          384 tiles: 1
 *   64 x 4096 x 12288            63.7 / 49.4  32.4  37.9  36.7     64 tiles: 2
 *   64 x 151936 x 4096 fp32       325 /  306   322               2374 tiles: 1
 *   64 x 1024 x 3072             14.1 / 11.6   7.3   5.6   4.9     16 tiles: 8
 *   128 x 4096 x 4096            18.8 / 29.8  18.5  20.5  25.7     64 tiles: persistent
 *   128 x 1024 x 3072            14.3 / 17.6  10.4   8.1   7.7     16 tiles: 8
 *   128 x 6144 x 1024 SwiGLU     10.6 / 11.1   8.5  14.3           96 tiles: 2
 *   256 x 1024 x 3072            14.2 / 17.6  12.0  10.2  13.5     32 tiles: 4
 *
 * Whole steps decide where kernels overlap (Qwen3-0.6B, H200). A short K is not cut in two: narrow
 * tiles make as many CTAs, and no sums are exchanged. 64 sequences 1.144 ms a step with tiles of 64
 * in two parts, 1.141 with tiles of 32 for qkv [4096 x 1024], 1.120 for gate+up [6144 x 1024] too.
 * From 65 to 128 tokens o [1024 x 2048] and down [1024 x 3072] take two tiles of 64 tokens in 4
 * parts of K: the first token of 128 comes after 1.187 ms, with the library after 1.224 to 1.243,
 * with tiles of 128 tokens in 8 parts after 1.239. */
#include "ops/linear/linear_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_sm90_params.h"

enum {
    TILE_ROWS = 128,
    TILE_K_BYTES = 128,
    SHARED_SLACK = 1024,
    STATIC_SHARED = 512,
    MAX_STAGES = 6,
    MOST_CLUSTER = 2,
    CLUSTER_WAVES = 16, /* of tiles, from which on clusters of two CTAs pay */
    SPLIT_COLUMNS = 64, /* widths of a tile of the split kernel */
    SPLIT_WIDE = 96,
    SPLIT_NARROW = 32,
    NARROW_COLS = 1024,      /* the longest K for which narrow tiles were measured */
    SPLIT_SHARED = 96 << 10, /* bytes of its stages: an SM has room for two CTAs */
    MOST_SUMS = 128,         /* columns of all sums that a CTA holds: registers */
    MAX_SPLIT = 8            /* CTAs that a cluster may have on every GPU */
};

static bool aligned_rows(const vt_tensor *t)
{
    return (uintptr_t)t->data % 16 == 0 && t->row_stride * vt_dtype_get(t->dtype)->bytes % 16 == 0;
}

bool linear_sm90_fits(const linear_args *a, const vt_target *t)
{
    bool pair = a->epilogue != LINEAR_NONE, f32 = a->y->dtype == VT_F32;
    return t->level >= 90 && aligned_rows(a->x) && a->w->cols % 8 == 0 && aligned_rows(a->y) &&
           (!a->residual || (aligned_rows(a->residual) && !f32)) &&
           !(pair && (a->bias || a->residual || f32)) && a->w->rows % 2 == 0;
}

/* The columns of y that a tile makes: half its width for pairs. */
static int32_t out_columns(int32_t bn, bool pair) { return pair ? bn / 2 : bn; }

static int64_t tiles_of(int64_t tokens, int64_t columns, int32_t bm, int32_t out)
{
    return vt_ceil_div(tokens, bm) * vt_ceil_div(columns, out);
}

enum { N_WIDTHS = 3 };
static const int32_t kWidth[N_WIDTHS] = {256, 128, 64};
static const int64_t kCost[N_WIDTHS] = {100, 52, 41}; /* of a tile: BN / measured rate */

/* Two sets of accumulators leave no registers for the widest tile. */
static int first_width(int32_t segments) { return segments > 1 ? 1 : 0; }

static int32_t choose_width(int64_t tokens, int64_t columns, bool pair, int32_t sms,
                            int32_t segments)
{
    int64_t best = INT64_MAX;
    int32_t width = 0;
    for (int i = first_width(segments); i < (pair ? 2 : N_WIDTHS); i++) {
        int64_t tiles = tiles_of(tokens, columns, TILE_ROWS, out_columns(kWidth[i], pair));
        int64_t cost = vt_ceil_div(tiles, sms) * kCost[i];
        if (cost < best) {
            best = cost;
            width = kWidth[i];
        }
    }
    return width;
}

bool linear_sm90_fills(int64_t tokens, int64_t columns, bool pair, int32_t sms)
{
    int32_t out = out_columns(choose_width(tokens, columns, pair, sms, 0), pair);
    int64_t tiles = tiles_of(tokens, columns, TILE_ROWS, out);
    return 10 * tiles >= 9 * vt_ceil_div(tiles, sms) * sms;
}

/* The persistent kernel with tiles of bn weight rows. */
typedef struct width_form {
    int32_t bn, stages;
    int64_t tiles;
    cuda_launch launch; /* of clusters of one CTA or two, which share their W tiles */
} width_form;

static vt_status encode_maps(const linear_args *a, vt_cuda *c, const width_form *f,
                             gemm_sm90_params *p, vt_err *err)
{
    bool halves = linear_pair(a) != 0 || f->launch.cluster > 1;
    const vt_tensor *x = a->x, *y = a->y, *r = a->residual;
    int64_t m = x->dim[0], k = a->w->cols;
    TRY(vt_cuda_tensor_map_2d(c, x->data, m, k, x->row_stride * 2, TILE_ROWS, 64, &p->x, err));
    TRY(vt_cuda_tensor_map_2d(c, a->w->part[0]->data, a->w->rows, k, k * 2,
                              (uint32_t)(halves ? f->bn / 2 : f->bn), 64, &p->w, err));
    if (y->dtype == VT_BF16)
        TRY(vt_cuda_tensor_map_2d(c, y->data, m, y->dim[1], y->row_stride * 2, 64, 64, &p->y, err));
    if (r)
        TRY(vt_cuda_tensor_map_2d(c, r->data, m, r->dim[1], r->row_stride * 2, 64, 64, &p->residual,
                                  err));
    return VT_OK;
}

/* CTAs of a cluster. Two bring half of a W tile each and read it from L2 once for both. Qwen3-8B's
 * gate+up takes 2.4 % less time so with 8,192 tokens (46 waves) and 0.3 % more with 2,048 (12);
 * 0.6B's 2 % more with 2,048 (3) (H200). */
static int32_t cluster_of(int64_t tiles, int32_t bn, int32_t segments, int32_t sms)
{
    bool many = tiles >= (int64_t)CLUSTER_WAVES * sms && sms >= MOST_CLUSTER;
    return many && bn == kWidth[0] && segments <= 1 ? MOST_CLUSTER : 1;
}

/* most_cluster: 1 forbids clusters. */
static width_form width_form_of(const linear_args *a, const vt_target *t, int64_t tokens,
                                int32_t bn, int32_t segments, int32_t most_cluster)
{
    int32_t pair = linear_pair(a);
    bool f32 = a->y->dtype == VT_F32;
    uint32_t stage = (uint32_t)(TILE_ROWS + bn) * TILE_K_BYTES, c_bytes = 0;
    if (!f32)
        c_bytes = (uint32_t)vt_ceil_div(out_columns(bn, pair != 0), 64) * TILE_ROWS * 128;
    uint32_t room = (uint32_t)t->max_shared_bytes - STATIC_SHARED - SHARED_SLACK - c_bytes;
    uint32_t stages = room / stage > MAX_STAGES ? MAX_STAGES : room / stage;
    int64_t tiles = tiles_of(tokens, linear_outputs(a), TILE_ROWS, out_columns(bn, pair != 0));
    int32_t cluster = cluster_of(tiles, bn, segments, t->sm_count);
    if (cluster > most_cluster)
        cluster = most_cluster;
    int64_t most = t->sm_count / cluster, clusters = vt_ceil_div(tiles, cluster);
    return (width_form){
        .bn = bn,
        .stages = (int32_t)stages,
        .tiles = tiles,
        .launch = {.spec = JIT_SPEC("gemm_sm90.cu", "gemm_sm90", {"bn", bn},
                                    {"stages", (int32_t)stages},
                                    {"segments", segments > 1 ? segments : 1}, {"pair", pair},
                                    {"ctas", cluster}, {"bias", a->bias != NULL},
                                    {"residual", a->residual != NULL}, {"out_f32", f32}),
                   .grid = {(uint32_t)((clusters < most ? clusters : most) * cluster), 1, 1},
                   .cluster = (uint32_t)cluster,
                   .threads = 384,
                   .no_pdl = a->fresh,
                   .shared_bytes = stages * stage + c_bytes + SHARED_SLACK}};
}

static vt_status launch_width(const linear_args *a, const vt_lane *lane, width_form f)
{
    vt_cuda_lane *l = lane->cuda;
    gemm_sm90_params p = {.y_f32 = a->y->dtype == VT_F32 ? a->y->data : NULL,
                          .bias = a->bias ? a->bias->data : NULL,
                          .m = (int32_t)a->x->dim[0],
                          .n = (int32_t)a->w->rows,
                          .k = (int32_t)a->w->cols,
                          .y_stride = (int32_t)a->y->row_stride,
                          .scale = a->scale};
    if (!l->collect)
        TRY(encode_maps(a, l->cuda, &f, &p, &l->err));
    return vt_cuda_launch(l, &f.launch, &p, sizeof p);
}

/* ---- few tokens: gemm_split_sm90.cu ---- */

/* How the split kernel cuts a weight for a number of tokens. */
typedef struct split_tile {
    int32_t bm, bn, split;
    int32_t segments; /* of all parts */
    bool suits;       /* false: the persistent kernel is faster */
} split_tile;

enum { SPLIT_TOKENS = 256 };

/* The width of tiles of up to 64 tokens whose K is not split. An SM has two CTAs at a time, and a
 * wave of them takes as long as a tile is wide: of the two widths, the one with less of both. */
static int32_t split_width(int64_t tokens, int64_t columns, bool pair, int32_t sms)
{
    int64_t time[2];
    for (int i = 0; i < 2; i++) {
        int32_t bn = i == 0 ? SPLIT_COLUMNS : SPLIT_WIDE;
        int64_t tiles = tiles_of(tokens, columns, 64, out_columns(bn, pair));
        time[i] = vt_ceil_div(tiles, 2 * sms) * bn;
    }
    return time[1] < time[0] ? SPLIT_WIDE : SPLIT_COLUMNS;
}

/* Returns true if tiles of half the width, with K whole, make as many CTAs as two parts of K do. */
static bool narrow_is_enough(const linear_args *a, int64_t tokens, int64_t columns, bool pair,
                             int32_t sms)
{
    int64_t tiles = tiles_of(tokens, columns, 64, out_columns(SPLIT_NARROW, pair));
    return a->w->cols <= NARROW_COLS && 4 * tiles >= 3 * sms;
}

/* Deterministic programs: returns true if small tiles of more than 128 tokens are one wave of two
 * CTAs an SM, with K in two parts. qwen3-0.6b, 256 sequences: o [1024 x 2048] and down [1024 x
 * 3072] in tiles of 64 x 32 in 2 parts 46,347 tokens/s, 4 parts 43,357; 64 x 64 in 4 parts 44,613,
 * 8 parts 43,958; 128 x 64 in 4 parts 45,100 (H200). */
static bool small_tiles_suit(const linear_args *a, int64_t tokens, int64_t columns, int32_t sms)
{
    int64_t tiles = tiles_of(SPLIT_TOKENS, columns, 64, SPLIT_NARROW);
    return a->epilogue == LINEAR_NONE && tokens > 128 && tokens <= SPLIT_TOKENS && tiles <= sms;
}

bool linear_split_halves(const linear_args *a, const vt_target *t, int64_t tokens)
{
    enum { LEAST_COLS = 2048, MOST_COLS = 3072, PARTS = 4 };
    int64_t tiles = tiles_of(tokens, a->w->rows, 64, SPLIT_COLUMNS);
    return t->level >= 90 && a->epilogue == LINEAR_NONE && tokens > 64 && tokens <= 128 &&
           a->w->cols >= LEAST_COLS && a->w->cols <= MOST_COLS && PARTS * tiles <= t->sm_count &&
           4 * PARTS * tiles >= 3 * t->sm_count;
}

/* As many parts as make enough SMs stream. In deterministic programs a CTA has one or several of
 * the weight's segments (linear_segments), whose sums its registers hold. */
static split_tile split_of(const linear_args *a, const vt_target *target, int64_t tokens)
{
    bool pair = a->epilogue != LINEAR_NONE;
    int64_t columns = pair ? a->w->rows / 2 : a->w->rows, steps = vt_ceil_div(a->w->cols, 64);
    int32_t sms = target->sm_count, segments = target->deterministic ? linear_segments(a) : 0;
    bool halves = linear_split_halves(a, target, tokens);
    split_tile t = {tokens <= 64 || halves ? 64 : 128, SPLIT_COLUMNS, 1, 1, tokens <= SPLIT_TOKENS};
    int64_t tiles = tiles_of(tokens, columns, t.bm, out_columns(SPLIT_COLUMNS, pair));
    while (t.split < MAX_SPLIT && 4 * tiles * t.split < 3 * sms && steps >= 4 * t.split)
        t.split *= 2;
    if (segments > 0 && t.split > segments)
        t.split = segments;
    if (t.split == 1 && segments <= 1 && t.bm == 64)
        t.bn = split_width(tokens, columns, pair, sms);
    if (t.split == 2 && tokens <= 64 && narrow_is_enough(a, tokens, columns, pair, sms)) {
        t.bn = SPLIT_NARROW;
        t.split = 1;
    }
    if (segments > 1 && small_tiles_suit(a, tokens, columns, sms)) {
        t.bm = 64;
        t.bn = SPLIT_NARROW;
        t.split = 2;
    }
    while (segments > t.split && segments / t.split * t.bn > MOST_SUMS)
        t.split *= 2;
    t.segments = segments > 0 ? segments : t.split;
    if (t.bm == 128 && t.split < (pair ? 2 : 4)) /* gemm_sm90.cu has no narrow tiles for pairs */
        t.suits = false;
    if (segments > 0 && t.bm == 128 && 2 * tiles * t.split > 3 * sms)
        t.suits = false; /* more than 1.5 CTAs per SM only exchange more sums */
    return t;
}

bool linear_split_fits(const linear_args *a, int64_t tokens)
{
    int64_t columns = a->epilogue != LINEAR_NONE ? a->w->rows / 2 : a->w->rows;
    return tokens <= SPLIT_TOKENS && columns % 4 == 0;
}

bool linear_split_suits(const linear_args *a, const vt_target *t, int64_t tokens)
{
    return split_of(a, t, tokens).suits;
}

bool linear_split_is_wide(const linear_args *a, const vt_target *t, int64_t tokens)
{
    return linear_sm90_fits(a, t) && linear_split_fits(a, tokens) &&
           split_of(a, t, tokens).bn == SPLIT_WIDE;
}

typedef struct split_form {
    int32_t x_rows; /* rows of the TMA box for x */
    cuda_launch launch;
} split_form;

/* The launch for `tokens` tokens, cut as `t` says. A dry run passes the most tokens for which a
 * weight is cut in this way. */
static split_form split_form_of(const linear_args *a, split_tile t, int64_t tokens)
{
    enum { FEW_ROWS = 32 };
    int32_t pair = linear_pair(a);
    uint32_t stage = (uint32_t)(t.bm + t.bn) * TILE_K_BYTES;
    uint32_t stages = SPLIT_SHARED / stage;
    int32_t x_rows = tokens <= FEW_ROWS ? FEW_ROWS : t.bm;
    int64_t tiles = tiles_of(tokens, linear_outputs(a), t.bm, out_columns(t.bn, pair != 0));
    return (split_form){
        .x_rows = x_rows,
        .launch = {
            .spec = JIT_SPEC("gemm_split_sm90.cu", "gemm_split_sm90", {"bm", t.bm}, {"bn", t.bn},
                             {"x_rows", x_rows}, {"split", t.split}, {"segments", t.segments},
                             {"stages", (int32_t)stages}, {"pair", pair}, {"bias", a->bias != NULL},
                             {"residual", a->residual != NULL}, {"out_f32", a->y->dtype == VT_F32}),
            .grid = {(uint32_t)(tiles * t.split), 1, 1},
            .cluster = (uint32_t)t.split,
            .threads = (uint32_t)t.bm * 2 + 32,
            .no_pdl = a->fresh,
            .shared_bytes = stages * stage + SHARED_SLACK}};
}

static vt_status launch_split(const linear_args *a, const vt_lane *lane, split_tile t,
                              int64_t tokens)
{
    vt_cuda_lane *l = lane->cuda;
    const vt_tensor *x = a->x, *y = a->y, *r = a->residual;
    split_form f = split_form_of(a, t, tokens);
    gemm_split_params p = {.y = y->data,
                           .residual = r ? r->data : NULL,
                           .bias = a->bias ? a->bias->data : NULL,
                           .m = (int32_t)x->dim[0],
                           .n = (int32_t)a->w->rows,
                           .k = (int32_t)a->w->cols,
                           .y_stride = (int32_t)y->row_stride,
                           .residual_stride = r ? (int32_t)r->row_stride : 0,
                           .scale = a->scale};
    if (!l->collect) {
        uint32_t out = (uint32_t)out_columns(t.bn, linear_pair(a) != 0);
        TRY(vt_cuda_tensor_map_2d(l->cuda, x->data, p.m, p.k, x->row_stride * 2, (uint32_t)f.x_rows,
                                  64, &p.x, &l->err));
        TRY(vt_cuda_tensor_map_2d(l->cuda, a->w->part[0]->data, p.n, p.k, (int64_t)p.k * 2, out, 64,
                                  &p.w, &l->err));
    }
    return vt_cuda_launch(l, &f.launch, &p, sizeof p);
}

/* ---- running ---- */

/* A dry run launches every tiling that this weight may need at some number of tokens. */
static vt_status collect_splits(const linear_args *a, const vt_lane *lane)
{
    /* the most tokens for each of the tilings that split_of() distinguishes */
    static const int32_t kFew[] = {32, 64, 128, 256};
    int64_t here = a->x->dim[0];
    for (size_t i = 0; i < sizeof kFew / sizeof kFew[0]; i++) {
        split_tile t = split_of(a, lane->target, kFew[i]);
        if (t.suits || (here <= kFew[i] && (i == 0 || here > kFew[i - 1])))
            TRY(launch_split(a, lane, t, kFew[i]));
    }
    return VT_OK;
}

vt_status linear_split_sm90_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (lane->cuda->collect)
        return collect_splits(a, lane);
    if (a->x->dim[0] == 0)
        return VT_OK;
    return launch_split(a, lane, split_of(a, lane->target, a->x->dim[0]), a->x->dim[0]);
}

/* The launch with the best width for a number of tokens. */
static width_form chosen_width(const linear_args *a, const vt_target *t, int64_t tokens)
{
    int32_t segments = t->deterministic ? linear_segments(a) : 0;
    int32_t bn = choose_width(tokens, linear_outputs(a), linear_pair(a) != 0, t->sm_count,
                              segments);
    return width_form_of(a, t, tokens, bn, segments, MOST_CLUSTER);
}

vt_status linear_gemm_sm90_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    bool pair = linear_pair(a) != 0;
    int32_t segments = lane->target->deterministic ? linear_segments(a) : 0;
    if (a->x->dim[0] == 0)
        return VT_OK;
    if (!lane->cuda->collect)
        return launch_width(a, lane, chosen_width(a, lane->target, a->x->dim[0]));
    for (int i = first_width(segments); i < (pair ? 2 : N_WIDTHS); i++) /* any number of tokens */
        for (int32_t most = 1; most <= MOST_CLUSTER; most++) {
            width_form f = width_form_of(a, lane->target, a->x->dim[0], kWidth[i], segments, most);
            if (most == 1 || f.launch.cluster == (uint32_t)most)
                TRY(launch_width(a, lane, f));
        }
    return VT_OK;
}

void linear_split_sm90_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    split_tile tile = split_of(a, t, tokens);
    split_form f = split_form_of(a, tile, tokens);
    linear_cut_shape(a, size, out);
    out->tile[0] = tile.bm;
    out->tile[1] = tile.bn;
    out->tile[2] = 64;
    out->split = tile.split;
    vt_cut_roles(out,
                 tile.bm == 64 ? "1 TMA producer warp, 1 consumer warpgroup"
                               : "1 TMA producer warp, 2 consumer warpgroups",
                 tile.split > 1 ? "cluster, in rising order" : NULL);
    vt_cut_grid(out, t, &f.launch, 16);
}

void linear_gemm_sm90_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const linear_args *a = args;
    width_form f = chosen_width(a, t, vt_size_rows(a->x, size));
    linear_cut_shape(a, size, out);
    out->tile[0] = TILE_ROWS;
    out->tile[1] = f.bn;
    out->tile[2] = 64;
    vt_cut_roles(out, "1 TMA producer warpgroup, 2 consumer warpgroups", NULL);
    vt_cut_cuda(out, t, f.tiles, &f.launch, 16);
    out->resident = 1; /* its registers fill an SM */
    out->waves = (double)out->items / out->workers;
}
