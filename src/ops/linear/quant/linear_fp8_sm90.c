/* The launches of fp8_rows.cu, linear_fp8_sm90.cu and gemm_fp8_sm90.cu: products in E4M3 on Hopper,
 * of weights that have a scale for each block of 128 x 128. Checkpoints of this form are made for
 * activations in E4M3, too, with a scale for each token and 128 columns; the first kernel makes
 * them. The tensor cores are twice as fast as in BF16, and no weight is unpacked.
 *
 *   fp8_sm90        tens of tokens: tiles of 128 weight rows and up to 128 tokens, up to 64 with
 *                   two CTAs an SM. K is split over the CTAs of a cluster until they suffice.
 *   gemm_fp8_sm90   hundreds of tokens: persistent over tiles of 128 tokens and 192 or 128 weight
 *                   rows, in clusters of two CTAs that share the weights */
#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/quant/linear_fp8_params.h"
#include "ops/linear/quant/linear_quant.h"

enum {
    FEW_ROWS = 128, /* of weights: a tile of fp8_sm90 */
    WIDE = 128,     /* tokens of its widest tile */
    N_WIDTHS = 3,
    FEW_TOKENS = 256, /* the most for fp8_sm90 */
    MAX_SPLIT = 8,
    LEAST_UNITS = 8,   /* of 128 columns, in each part of K */
    MANY_TOKENS = 128, /* a tile of gemm_fp8_sm90 */
    CLUSTER = 2,       /* its CTAs that share weights */
    MAX_STAGES = 8,
    ROW_THREADS = 128,
    STATIC_SHARED = 1024, /* barriers, and what the system takes of each CTA */
    SHARED_SLACK = 1024
};
/* Tokens of a tile of fp8_sm90. */
static const int32_t kWidth[N_WIDTHS] = {32, 64, WIDE};

/* Rows of y that tiles of so many weight rows make. */
static int32_t outputs_of(const linear_args *a, int32_t rows)
{
    return linear_pair(a) ? rows / 2 : rows;
}

static int64_t tiles_of(const linear_args *a, int64_t tokens, int32_t rows, int32_t width)
{
    return vt_ceil_div(linear_outputs(a), outputs_of(a, rows)) * vt_ceil_div(tokens, width);
}

static bool fits(const linear_args *a, const vt_target *t)
{
    return linear_sm90_fits(a, t) && vt_weight_in_blocks(a->w) && a->w->cols % QUANT_UNIT == 0 &&
           linear_outputs(a) % 8 == 0 && a->y->dtype == VT_BF16;
}

/* ---- activations ---- */

/* How a call runs: the launch of its product, and what fp8_rows.cu makes for that. */
typedef struct fp8_form {
    int32_t width, rows;     /* tokens and weight rows of a tile */
    int32_t apart;           /* tokens that a CTA or cluster has: the copy of x has whole ones */
    int32_t split, resident; /* resident: CTAs per SM */
    int64_t tiles;
    bool many;
    cuda_launch launch;
} fp8_form;

/* The most tokens whose copy in E4M3 fits into the workspace, in whole tiles of a cluster. */
static int32_t piece_tokens(const linear_args *a, size_t workspace_bytes)
{
    size_t token = (size_t)a->w->cols + (size_t)a->w->cols / QUANT_UNIT * sizeof(float);
    return (int32_t)(workspace_bytes / token / FEW_TOKENS * FEW_TOKENS);
}

/* Writes x to the workspace in E4M3, and says where its scales are. */
static vt_status run_rows(const linear_args *a, const vt_lane *lane, const fp8_form *f,
                          linear_fp8_params *to)
{
    int32_t tokens = (int32_t)a->x->dim[0], k = (int32_t)a->w->cols;
    fp8_rows_params p = {.x = a->x->data,
                         .out = lane->workspace,
                         .x_stride = (int32_t)a->x->row_stride,
                         .n_tokens = tokens,
                         .padded = (int32_t)vt_round_up((size_t)tokens, (size_t)f->apart)};
    p.scale = (float *)(p.out + (size_t)p.padded * (size_t)k);
    to->x_scale = p.scale;
    to->padded = p.padded;
    cuda_launch l = {
        .spec = JIT_SPEC("fp8_rows.cu", "fp8_rows", {"k", k}, {"as_tiles", f->many},
                         {"threads", ROW_THREADS}),
        .grid = {cuda_blocks((int64_t)p.padded * (k / QUANT_UNIT) * 4, ROW_THREADS), 1, 1},
        .threads = ROW_THREADS};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

/* ---- few tokens ---- */

/* 65 to 128 tokens are two tiles where all tiles are at work at once: qkv of 8B takes 17.1 us so
 * and 22.4 in one tile of 128, gate+up 49.9 and 46.6. */
static int32_t width_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    int i = 0;
    while (i < N_WIDTHS - 1 && tokens > kWidth[i])
        i++;
    bool halves = kWidth[i] == WIDE && tokens <= WIDE &&
                  tiles_of(a, tokens, FEW_ROWS, WIDE / 2) <= 2 * (int64_t)t->sm_count;
    return halves ? WIDE / 2 : kWidth[i];
}

static int32_t split_of(const linear_args *a, const vt_target *t, int64_t tiles)
{
    int64_t units = a->w->cols / QUANT_UNIT;
    int32_t split = 1;
    while (split < MAX_SPLIT && 4 * tiles * split < 3 * t->sm_count &&
           units >= 2 * LEAST_UNITS * split)
        split *= 2;
    return split;
}

static fp8_form few_form(const linear_args *a, const vt_target *t, int64_t tokens)
{
    int32_t width = width_of(a, t, tokens), resident = width <= 64 ? 2 : 1;
    int64_t tiles = tiles_of(a, tokens, FEW_ROWS, width);
    int32_t split = split_of(a, t, tiles);
    int64_t stage = width * (QUANT_UNIT + (int64_t)sizeof(float)) +
                    linear_quant_tile_bytes(VT_FP8_E4M3, QUANT_UNIT) * FEW_ROWS / QUANT_TILE,
            room = ((int64_t)t->max_shared_bytes + STATIC_SHARED) / resident - STATIC_SHARED -
                   SHARED_SLACK,
            stages = room / stage < MAX_STAGES ? room / stage : MAX_STAGES;
    return (fp8_form){
        .width = width,
        .rows = FEW_ROWS,
        .apart = width,
        .split = split,
        .resident = resident,
        .tiles = tiles,
        .launch = {.spec = JIT_SPEC("linear_fp8_sm90.cu", "linear_fp8_sm90",
                                    {"k", (int32_t)a->w->cols}, {"tokens", width}, {"split", split},
                                    {"stages", (int32_t)stages}, {"pair", linear_pair(a)},
                                    {"bias", a->bias != NULL}, {"residual", a->residual != NULL}),
                   .grid = {(uint32_t)(tiles * split), 1, 1},
                   .cluster = (uint32_t)split,
                   .threads = 384,
                   .shared_bytes = (uint32_t)(stages * stage) + SHARED_SLACK}};
}

/* A map of the tiles as [halves][tiles][units][words of 8 bytes]. */
static vt_status encode_words(const linear_args *a, vt_cuda *c, const uint32_t *box,
                              cu_tensor_map *out, vt_err *err)
{
    int64_t unit = linear_quant_tile_bytes(VT_FP8_E4M3, QUANT_UNIT),
            units = a->w->cols / QUANT_UNIT, tiles = linear_quant_tiles(linear_outputs(a));
    return vt_cuda_tensor_map_words(
        c, a->w->part[0]->data, 4,
        (const int64_t[]){unit / 8, units, tiles, linear_pair(a) ? 2 : 1},
        (const int64_t[]){unit, units * unit, tiles * units * unit}, box, out, err);
}

/* A map of the copy of x, of which two bytes are an element. */
static vt_status encode_x(const linear_args *a, const vt_lane *lane, int32_t width,
                          cu_tensor_map *out, vt_err *err)
{
    int64_t k = a->w->cols;
    return vt_cuda_tensor_map_2d(lane->cuda->cuda, lane->workspace, a->x->dim[0], k / 2, k,
                                 (uint32_t)width, 64, out, err);
}

static vt_status encode_few(const linear_args *a, const vt_lane *lane, const fp8_form *f,
                            linear_fp8_params *p, vt_err *err)
{
    uint32_t halves = linear_pair(a) ? 2 : 1,
             words = (uint32_t)linear_quant_tile_bytes(VT_FP8_E4M3, QUANT_UNIT) / 8;
    TRY(encode_words(a, lane->cuda->cuda,
                     (const uint32_t[]){words, 1, FEW_ROWS / QUANT_TILE / halves, halves}, &p->w,
                     err));
    return encode_x(a, lane, f->width, &p->x, err);
}

static linear_fp8_params params_of(const linear_args *a)
{
    const vt_tensor *y = a->y, *r = a->residual;
    return (linear_fp8_params){.bias = a->bias ? a->bias->data : NULL,
                               .residual = r ? r->data : NULL,
                               .y = y->data,
                               .y_stride = (int32_t)y->row_stride,
                               .residual_stride = r ? (int32_t)r->row_stride : 0,
                               .n_tokens = (int32_t)a->x->dim[0],
                               .rows = linear_outputs(a),
                               .scale = a->scale};
}

static vt_status launch_few(const linear_args *a, const vt_lane *lane, const fp8_form *f)
{
    linear_fp8_params p = params_of(a);
    TRY(run_rows(a, lane, f, &p));
    if (!lane->cuda->collect)
        TRY(encode_few(a, lane, f, &p, &lane->cuda->err));
    return vt_cuda_launch(lane->cuda, &f->launch, &p, sizeof p);
}

bool linear_fp8_few_fits(const linear_args *a, const vt_target *t, int64_t tokens)
{
    return fits(a, t) && tokens <= FEW_TOKENS &&
           piece_tokens(a, linear_workspace_bytes(t)) >= FEW_TOKENS;
}

/* Where this row was measured to be faster than those in BF16: weights of the 8B shape from 8
 * tokens on (9: 3.11 ms a step, 3.66 with passes; 4: 3.00 and 2.86), those of the 0.6B shape from
 * 33 on (64: 1.56 ms, 1.92; 16: 1.04 and 0.82). */
bool linear_fp8_few_suits(const linear_args *a, int64_t tokens)
{
    enum { LARGE = 16 << 20, LEAST_TOKENS = 8, LEAST_OF_SMALL = 33 };
    return tokens >= (a->w->rows * a->w->cols >= LARGE ? LEAST_TOKENS : LEAST_OF_SMALL);
}

/* A dry run launches every form that this weight may need at some number of tokens. */
static vt_status collect_few(const linear_args *a, const vt_lane *lane)
{
    static const int32_t kMost[] = {32, 64, WIDE, FEW_TOKENS}; /* tokens of each form */
    for (size_t i = 0; i < sizeof kMost / sizeof *kMost; i++) {
        fp8_form f = few_form(a, lane->target, kMost[i]);
        TRY(launch_few(a, lane, &f));
    }
    return VT_OK;
}

vt_status linear_fp8_few_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (lane->cuda->collect)
        return collect_few(a, lane);
    if (a->x->dim[0] == 0)
        return VT_OK;
    fp8_form f = few_form(a, lane->target, a->x->dim[0]);
    return launch_few(a, lane, &f);
}

/* ---- many tokens ---- */

/* A unit of a tile of 192 weight rows takes 0.72 us, one of 128 0.53 (H200). */
enum { TALL_ROWS = 192, TALL_TIME = 135, LOW_ROWS = 128, LOW_TIME = 100 };

static int64_t many_tiles(const linear_args *a, int64_t tokens, int32_t rows)
{
    return tiles_of(a, (int64_t)vt_round_up((size_t)tokens, CLUSTER * MANY_TOKENS), rows,
                    MANY_TOKENS);
}

/* The time of the SM with the most tiles, in hundredths of a unit of a tile of LOW_ROWS. */
static int64_t many_time(const linear_args *a, const vt_target *t, int64_t tokens, int32_t rows)
{
    return vt_ceil_div(many_tiles(a, tokens, rows), t->sm_count) * (a->w->cols / QUANT_UNIT) *
           (rows == TALL_ROWS ? TALL_TIME : LOW_TIME);
}

static int32_t rows_of(const linear_args *a, const vt_target *t, int64_t tokens)
{
    bool tall = many_time(a, t, tokens, TALL_ROWS) < many_time(a, t, tokens, LOW_ROWS);
    return tall ? TALL_ROWS : LOW_ROWS;
}

static fp8_form many_form(const linear_args *a, const vt_target *t, int64_t tokens, int32_t rows)
{
    int64_t tiles = many_tiles(a, tokens, rows), most = t->sm_count / CLUSTER * CLUSTER,
            out = (int64_t)MANY_TOKENS * outputs_of(a, rows) * 2,
            stage = (MANY_TOKENS + rows) * (QUANT_UNIT + (int64_t)sizeof(float)),
            stages = ((int64_t)t->max_shared_bytes - STATIC_SHARED - SHARED_SLACK - out) / stage;
    stages = stages < MAX_STAGES ? stages : MAX_STAGES;
    return (fp8_form){
        .width = MANY_TOKENS,
        .rows = rows,
        .apart = CLUSTER * MANY_TOKENS,
        .split = 1,
        .resident = 1,
        .tiles = tiles,
        .many = true,
        .launch = {.spec = JIT_SPEC("gemm_fp8_sm90.cu", "gemm_fp8_sm90", {"k", (int32_t)a->w->cols},
                                    {"rows", rows}, {"stages", (int32_t)stages},
                                    {"pair", linear_pair(a)}, {"bias", a->bias != NULL},
                                    {"residual", a->residual != NULL}),
                   .grid = {(uint32_t)(tiles < most ? tiles : most), 1, 1},
                   .cluster = CLUSTER,
                   .threads = 384,
                   .shared_bytes = (uint32_t)(stages * stage + out) + SHARED_SLACK}};
}

static vt_status encode_many(const linear_args *a, const vt_lane *lane, const fp8_form *f,
                             linear_fp8_params *p, vt_err *err)
{
    enum { ROW_BYTES = 64, ROW_WORDS = ROW_BYTES / 2, UNIT_ROWS = 16, SCALE_WORDS = 4 };
    vt_cuda *c = lane->cuda->cuda;
    const vt_tensor *y = a->y, *r = a->residual;
    int64_t m = y->dim[0], unit = linear_quant_tile_bytes(VT_FP8_E4M3, QUANT_UNIT),
            units = a->w->cols / QUANT_UNIT, tiles = linear_quant_tiles(linear_outputs(a)),
            tile = units * unit;
    uint32_t halves = linear_pair(a) ? 2 : 1, columns = 64 / halves,
             box_tiles = (uint32_t)f->rows / QUANT_TILE;
    TRY(vt_cuda_tensor_map(
        c, a->w->part[0]->data, 5, (const int64_t[]){ROW_WORDS, UNIT_ROWS, tiles, halves, units},
        (const int64_t[]){ROW_BYTES, tile, tiles * tile, unit},
        (const uint32_t[]){ROW_WORDS, UNIT_ROWS, box_tiles / 2, 1, 1}, &p->w, err));
    TRY(encode_words(a, c, (const uint32_t[]){SCALE_WORDS, 1, box_tiles / halves, halves},
                     &p->w_scale, err));
    TRY(encode_x(a, lane, MANY_TOKENS, &p->x, err));
    TRY(vt_cuda_tensor_map_2d(c, y->data, m, y->dim[1], y->row_stride * 2, 64, columns, &p->y_map,
                              err));
    if (r)
        TRY(vt_cuda_tensor_map_2d(c, r->data, m, r->dim[1], r->row_stride * 2, 64, columns,
                                  &p->from_map, err));
    return VT_OK;
}

static vt_status launch_many(const linear_args *a, const vt_lane *lane, int32_t rows)
{
    linear_fp8_params p = params_of(a);
    fp8_form f = many_form(a, lane->target, a->x->dim[0], rows);
    TRY(run_rows(a, lane, &f, &p));
    if (!lane->cuda->collect)
        TRY(encode_many(a, lane, &f, &p, &lane->cuda->err));
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

static vt_status run_piece(const linear_args *a, const vt_lane *lane)
{
    return launch_many(a, lane, rows_of(a, lane->target, a->x->dim[0]));
}

bool linear_fp8_gemm_fits(const linear_args *a, const vt_target *t)
{
    return fits(a, t) && t->sm_count >= CLUSTER && piece_tokens(a, linear_workspace_bytes(t)) > 0;
}

/* Up to FEW_TOKENS by the times of both, as measured with the shapes of 8B: a unit of fp8_sm90
 * takes 0.75 us, its begin and end 2 us more. Of 256 tokens it takes o and down (19.6 and 39.7 us,
 * 21.3 and 53.8 here), and not qkv and gate+up (30.4 and 71.8, 19.8 and 49.7 here). */
bool linear_fp8_gemm_suits(const linear_args *a, const vt_target *t, int64_t tokens)
{
    enum { FEW_TIME = 140, FEW_MORE = 350 };
    if (tokens <= WIDE || tokens > FEW_TOKENS)
        return tokens > FEW_TOKENS;
    fp8_form f = few_form(a, t, tokens);
    int64_t few = vt_ceil_div(f.tiles * f.split, t->sm_count) *
                      vt_ceil_div(a->w->cols / QUANT_UNIT, f.split) * FEW_TIME +
                  FEW_MORE;
    return many_time(a, t, tokens, rows_of(a, t, tokens)) < few;
}

vt_status linear_fp8_gemm_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (!lane->cuda->collect)
        return linear_in_pieces(a, lane, piece_tokens(a, lane->workspace_bytes), run_piece);
    TRY(launch_many(a, lane, TALL_ROWS));
    return launch_many(a, lane, LOW_ROWS);
}

/* ---- both ---- */

static void describe(const linear_args *a, const vt_target *t, const vt_size *size,
                     const fp8_form *f, vt_cut *out)
{
    linear_cut_shape(a, size, out);
    out->tile[0] = f->width;
    out->tile[1] = f->rows;
    out->tile[2] = QUANT_UNIT;
    out->split = f->split;
    vt_cut_roles(out, "x to E4M3; 1 TMA producer, 2 consumer warpgroups",
                 f->split > 1 ? "cluster, in rising order" : NULL);
    vt_cut_cuda(out, t, f->tiles * f->split, &f->launch, 16);
    out->resident = f->resident;
    out->waves = (double)out->items / ((double)out->workers * out->resident);
}

void linear_fp8_few_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    fp8_form f = few_form(args, t, vt_size_rows(((const linear_args *)args)->x, size));
    describe(args, t, size, &f, out);
}

/* Of the first piece. */
void linear_fp8_gemm_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size), most = piece_tokens(a, linear_workspace_bytes(t));
    tokens = tokens < most ? tokens : most;
    fp8_form f = many_form(a, t, tokens, rows_of(a, t, tokens));
    describe(a, t, size, &f, out);
}

/* The activations' copy is written and read. */
vt_cost linear_fp8_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const linear_args *a = args;
    int64_t copy = vt_batch_elems(a->x, batch);
    return (vt_cost){
        .read = {.weights = copy > 0 ? linear_quant_tiles_extra(a->w) : 0, .activations = copy},
        .write.activations = copy};
}
