/* The vector rows of linear, compiled once per instruction set by the .c file that includes this
 * one.
 *
 * A lane is a weight row (linear_pack.h), so an output is one chain of additions along K in one
 * lane:
 *
 *   quantised   acc = fma(float(sum of a block's 32 int8 products), d_w * d_x, acc), block after
 *               block; if the type has minima, low = fma(min_w, d_x * sum(q_x), low), and
 *               acc + low at the end
 *   float       acc = fma(w[k], x[k], acc), k after k
 *
 * An int32 sum of products is exact in any order, and all other arithmetic is fixed. So the results
 * have the same bits for one row or a thousand, and with AVX2, AVX-512 or AMX tiles (quantised
 * types) (test_linear_result_of_a_token_is_independent_of_the_batch,
 * test_linear_quantised_result_is_independent_of_the_instruction_set).
 *
 * For one token, weights go from their packed form through registers into the product, and every
 * worker quantises the token itself (0.12 us for 576 columns; a barrier costs more). Each has a
 * fixed share of the weights, which it reads as STREAMS streams. Several tokens are quantised by
 * the workers together. Then, where a panel holds them all and the workers are few, each takes
 * its share of the units, and else
 *
 *   ticket -> some units (one or two tiles) and a set of panels (second-level cache)
 *     for each GROUP of panels
 *       for each CHUNK of blocks
 *         unpack it (first-level cache), except for a few tokens (dots_packed);
 *         multiply it by all panels of the group
 *       epilogue
 *
 * so weights are read from memory once per set of panels, and sums wait in memory between
 * chunks. */
#include <stdatomic.h>

#include "device/cpu.h"
#include "ops/linear/cpu/linear_dot.h"
#include "ops/linear/linear_impl.h"

enum {
    CHUNK = 24,                /* most blocks unpacked at a time: 15 KiB */
    GROUP = 16,                /* panels */
    PANEL_SET_BYTES = 1 << 20, /* half of a second-level cache */
    /* Float tiles at a time where they are not paired. Three tiles and 8 tokens take 28 of
     * AVX-512's 32 registers, and 11 loads for 24 fma; two tiles take 10 for 16. */
    FLOAT_TILES = HALVES == 1 ? 3 : 2,
};

/* ---- float weights ---- */

/* Columns k, k + 1, ... of VF rows of a tile; BF16 comes in pairs, so `w` has room for two. */
INLINE int load_columns(vt_dtype type, const uint8_t *tile, int64_t k, int h, vf *w)
{
    if (type == VT_F32) {
        w[0] = vf_load(tile + (LINEAR_TILE * k + VF * h) * 4);
        return 1;
    }
    if (type == VT_F16) {
        w[0] = vf_load_f16(tile + (LINEAR_TILE * k + VF * h) * 2);
        return 1;
    }
    vi pair = vi_load(tile + (LINEAR_TILE * k + 2 * VF * h) * 2);
    w[0] = vf_bits(VI_SLLI32(pair, 16));
    w[1] = vf_bits(vi_and(pair, vi_set((int32_t)0xffff0000)));
    return 2;
}

/* out[tile][t][row] for R tiles and T tokens (constants) from t0 on, `stride` apart in x. */
INLINE void dot_float(vt_dtype type, int R, int t0, int T, int64_t cols, const uint8_t *tile,
                      int64_t tile_bytes, const float *x, int64_t stride, tile_sums *out)
{
    x += t0 * stride;
    for (int h = 0; h < HALVES; h++) {
        vf acc[FLOAT_TILES][8], w[FLOAT_TILES][2];
        UNROLL
        for (int i = 0; i < R * T; i++)
            acc[i / T][i % T] = vf_zero();
        int step = type == VT_BF16 ? 2 : 1;
        for (int64_t k = 0; k < cols; k += step) {
            UNROLL
            for (int r = 0; r < R; r++)
                load_columns(type, tile + r * tile_bytes, k, h, w[r]);
            UNROLL
            for (int i = 0; i < step; i++) {
                if (k + i >= cols) /* the second of a pair beyond an odd end */
                    break;
                UNROLL
                for (int t = 0; t < T; t++) {
                    vf xk = vf_set1(x[t * stride + k + i]);
                    UNROLL
                    for (int r = 0; r < R; r++)
                        acc[r][t] = vf_fma(w[r][i], xk, acc[r][t]);
                }
            }
        }
        UNROLL
        for (int i = 0; i < R * T; i++)
            vf_store(out[i / T][t0 + i % T] + VF * h, acc[i / T][i % T]);
    }
}

/* out[i][row] of one token for R tiles (a constant <= STREAMS) that lie apart, both halves of each
 * in one pass. The many chains of additions hide the latency of fma. */
INLINE void dot_float_one(vt_dtype type, int R, int64_t cols, const uint8_t *const *tile,
                          const float *x, float *const *out)
{
    const int64_t column = LINEAR_TILE * (type == VT_F32 ? 4 : 2);
    vf acc[STREAMS][HALVES], w[2];
    UNROLL
    for (int i = 0; i < R * HALVES; i++)
        acc[i / HALVES][i % HALVES] = vf_zero();
    for (int64_t k = 0; k < cols; k += 2) {
        const bool pair = k + 1 < cols; /* false at an odd end */
        vf x0 = vf_set1(x[k]), x1 = vf_set1(pair ? x[k + 1] : 0);
        UNROLL
        for (int r = 0; r < R; r++) {
            PREFETCH_L2(tile[r] + k * column + AHEAD);
            if (type == VT_F32)
                PREFETCH_L2(tile[r] + (k + 1) * column + AHEAD);
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                int n = load_columns(type, tile[r], k, h, w);
                acc[r][h] = vf_fma(w[0], x0, acc[r][h]);
                if (pair && n == 1)
                    load_columns(type, tile[r], k + 1, h, w + 1);
                if (pair)
                    acc[r][h] = vf_fma(w[1], x1, acc[r][h]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < R * HALVES; i++)
        vf_store(out[i / HALVES] + VF * (i % HALVES), acc[i / HALVES][i % HALVES]);
}

/* One token and n <= STREAMS tiles of a float type. */
#define FLOAT_ONE(TYPE)                                             \
    case TYPE:                                                      \
        if (n == STREAMS)                                           \
            dot_float_one(TYPE, STREAMS, cols, tile, x, out);       \
        else                                                        \
            for (int i = 0; i < n; i++)                             \
                dot_float_one(TYPE, 1, cols, tile + i, x, out + i); \
        break;
NOINLINE void dot_float_streams(vt_dtype type, int n, int64_t cols, const uint8_t *const *tile,
                                const float *x, float *const *out)
{
    switch (type) {
        FLOAT_ONE(VT_F32)
        FLOAT_ONE(VT_F16)
    default:
        FLOAT_ONE(VT_BF16)
    }
}

INLINE void dot_float_tokens(vt_dtype type, int R, int n, int64_t cols, const uint8_t *tile,
                             int64_t tile_bytes, const float *x, int64_t stride, tile_sums *out)
{
    enum { SET = HALVES == 1 ? 8 : 4 }; /* tokens whose accumulators fit into registers */
    int t = 0;
    for (; t + SET <= n; t += SET)
        dot_float(type, R, t, SET, cols, tile, tile_bytes, x, stride, out);
    if (SET > 4 && t + 4 <= n) {
        dot_float(type, R, t, 4, cols, tile, tile_bytes, x, stride, out);
        t += 4;
    }
    if (t + 2 <= n) {
        dot_float(type, R, t, 2, cols, tile, tile_bytes, x, stride, out);
        t += 2;
    }
    if (t < n)
        dot_float(type, R, t, 1, cols, tile, tile_bytes, x, stride, out);
}

/* n <= 16 tokens and `tiles` (1 to FLOAT_TILES) tiles of a float type. */
#define FLOAT_TOKENS(TYPE)                                                                  \
    case TYPE:                                                                              \
        if (tiles == FLOAT_TILES)                                                           \
            dot_float_tokens(TYPE, FLOAT_TILES, n, cols, tile, tile_bytes, x, stride, out); \
        else if (tiles == 2)                                                                \
            dot_float_tokens(TYPE, 2, n, cols, tile, tile_bytes, x, stride, out);           \
        else                                                                                \
            dot_float_tokens(TYPE, 1, n, cols, tile, tile_bytes, x, stride, out);           \
        break;
NOINLINE void dot_float_panel(vt_dtype type, int tiles, int n, int64_t cols, const uint8_t *tile,
                              int64_t tile_bytes, const float *x, int64_t stride, tile_sums *out)
{
    switch (type) {
        FLOAT_TOKENS(VT_F32)
        FLOAT_TOKENS(VT_F16)
    default:
        FLOAT_TOKENS(VT_BF16)
    }
}

/* ---- epilogues ---- */

/* silu(g) = g / (1 + e^-g); gelu in its tanh form is g / (1 + e^-2u), u = sqrt(2/pi)(g + 0.044715
 * g^3). */
INLINE vf vf_activation(linear_epilogue e, vf g)
{
    vf z = g;
    if (e == LINEAR_GEGLU) {
        vf cube = vf_mul(vf_mul(g, g), g);
        z = vf_mul(vf_set1(1.5957691f), vf_fma(cube, vf_set1(0.044715f), g));
    }
    return vf_div(g, vf_add(vf_set1(1), vf_exp(vf_mul(z, vf_set1(-1)))));
}

/* The values of pairs with LINEAR_CLAMPED. */
INLINE vf vf_clamped(vf g, vf u, float limit)
{
    g = vf_min(g, vf_set1(limit));
    u = vf_max(vf_min(u, vf_set1(limit)), vf_set1(-limit));
    vf below = vf_add(vf_set1(1), vf_exp(vf_mul(g, vf_set1(-1.702f))));
    return vf_mul(vf_div(g, below), vf_add(u, vf_set1(1)));
}

/* Up to FLOAT_TILES tiles, or the two of a pair, which become one tile of outputs. */
typedef struct unit {
    int64_t tile; /* the first */
    int tiles;
    float bias[FLOAT_TILES][LINEAR_TILE];
} unit;

static void unit_init(unit *u, const linear_args *a, const linear_layout *l, int64_t i,
                      int per_unit)
{
    u->tile = i * per_unit;
    u->tiles = u->tile + per_unit <= l->n_tiles ? per_unit : (int)(l->n_tiles - u->tile);
    memset(u->bias, 0, sizeof u->bias);
    for (int k = 0; a->bias && k < u->tiles; k++)
        for (int r = 0; r < LINEAR_TILE; r++) {
            int64_t row = linear_row_of(a->w, u->tile + k, r);
            if (row >= 0)
                u->bias[k][r] = linear_float_at(a->bias, row);
        }
}

/* Where tile k of a unit begins in y, and how many columns of y it has. With an epilogue of two
 * values a unit is one tile of y. */
static int64_t unit_column(const unit *u, const linear_args *a, int k, int64_t *columns)
{
    const vt_weight *w = a->w;
    int64_t rows = w->paired ? w->rows / 2 : w->rows;
    int64_t row = (w->paired ? u->tile / 2 : u->tile + k) * LINEAR_TILE;
    *columns = rows - row < LINEAR_TILE ? rows - row : LINEAR_TILE;
    return w->paired && a->epilogue == LINEAR_NONE ? row + k * rows : row;
}

/* Lanes VF h .. of token t's sum, plus the share of the minima if there is one. */
INLINE vf whole_sum(const tile_sums sum, const tile_sums low, int64_t t, int h)
{
    vf v = vf_load(sum[t] + VF * h);
    return low ? vf_add(v, vf_load(low[t] + VF * h)) : v;
}

/* Applies the epilogue to the sums of n tokens from t0 on, sum[tile] (+ low[tile], or NULL), and
 * stores them to y. */
static void unit_finish(const unit *u, const linear_args *a, int64_t t0, int64_t n,
                        const tile_sums *sum, const tile_sums *low)
{
    bool glu = a->epilogue != LINEAR_NONE;
    vf scale = vf_set1(a->scale);
    for (int k = 0; k < (glu ? 1 : u->tiles); k++) {
        int64_t columns, column = unit_column(u, a, k, &columns);
        for (int h = 0; h < HALVES && VF * h < columns; h++) {
            int64_t j = column + VF * h, some = columns - VF * h;
            vf bias = vf_load(u->bias[k] + VF * h), up_bias = vf_load(u->bias[1] + VF * h);
            for (int64_t t = 0; t < n; t++) {
                vf v = vf_mul(whole_sum(sum[k], low ? low[k] : NULL, t, h), scale);
                if (a->bias)
                    v = vf_add(v, bias);
                if (glu) {
                    vf up = vf_mul(whole_sum(sum[1], low ? low[1] : NULL, t, h), scale);
                    if (a->bias)
                        up = vf_add(up, up_bias);
                    v = a->epilogue == LINEAR_CLAMPED ? vf_clamped(v, up, a->limit)
                                                      : vf_mul(vf_activation(a->epilogue, v), up);
                }
                const vt_tensor *res = a->residual;
                if (res)
                    v = vf_add(
                        v, vf_load_some((float *)res->data + (t0 + t) * res->row_stride + j, some));
                vf_store_some((float *)a->y->data + (t0 + t) * a->y->row_stride + j, v, some);
            }
        }
    }
}

/* FP8 weights may have a scale for every 128 columns (and rows): then K is cut into segments of
 * 128, each summed on its own, and  sum += scale * sum of the segment. */
static int64_t segment_cols(const vt_weight *w)
{
    for (int32_t i = 0; i < w->n_parts; i++)
        if (w->scale[i] && vt_tensor_elems(w->scale[i]) > 1)
            return LINEAR_SCALE_BLOCK;
    return w->cols;
}

/* Adds the sums of n tokens over segment i to those of the segments before it. */
static void add_segment(const unit *u, const vt_weight *w, int64_t i, int64_t n,
                        const tile_sums *part, tile_sums *out)
{
    for (int k = 0; k < u->tiles; k++) {
        float scale[LINEAR_TILE] = {0};
        for (int r = 0; r < LINEAR_TILE; r++) {
            int64_t row = linear_row_of(w, u->tile + k, r);
            if (row < 0)
                continue;
            int32_t of = linear_part_of(w, &row);
            scale[r] = linear_scale_at(w->scale[of], row, i * LINEAR_SCALE_BLOCK);
        }
        for (int64_t t = 0; t < n; t++)
            for (int h = 0; h < HALVES; h++) {
                vf before = i ? vf_load(out[k][t] + VF * h) : vf_zero();
                vf sum = vf_load(part[k][t] + VF * h);
                vf_store(out[k][t] + VF * h, vf_fma(sum, vf_load(scale + VF * h), before));
            }
    }
}

/* Prefetches the cache lines of y (and of the residual, if it is another tensor) that unit_finish
 * will touch. Rows of y lie pages apart, and 16 misses one after the other cost as much as a third
 * of the products. */
static void unit_prefetch(const unit *u, const linear_args *a, int64_t t0, int64_t n)
{
    const vt_tensor *y = a->y, *res = a->residual;
    for (int k = 0; k < (a->epilogue == LINEAR_NONE ? u->tiles : 1); k++) {
        int64_t columns, j = unit_column(u, a, k, &columns);
        for (int64_t t = t0; t < t0 + n; t++) {
            PREFETCH((const float *)y->data + t * y->row_stride + j);
            if (res && res != y)
                PREFETCH((const float *)res->data + t * res->row_stride + j);
        }
    }
}

/* ---- the run ---- */

static int64_t take(const vt_lane *lane)
{
    return atomic_fetch_add_explicit(lane->ticket, 1, memory_order_relaxed);
}

/* The number of units that a ticket stands for: there are about eight tickets per worker. */
static int64_t units_per_ticket(int64_t n, const vt_lane *lane)
{
    int64_t chunk = n / (8 * (int64_t)lane->n_workers);
    return chunk > 1 ? chunk : 1;
}

/* Returns true if each worker has a fixed share of the weights, which it reads from one end to the
 * other: the weights of so few tokens come from memory while their products are computed. Cores of
 * different speeds take tickets, and so do many workers with several tokens: with 16 of them on an
 * Intel Xeon shares cost 4 to 6 %, since all wait for the one whose core is busy. */
static bool has_fixed_shares(int64_t tokens, const vt_lane *lane)
{
    enum { FEW = 4 };
    bool few = tokens == 1 || (tokens <= PANEL && lane->n_workers <= FEW);
    return few && !vt_cpu_get()->uneven;
}

/* Panels in a set. */
static int64_t set_of(int64_t panel_bytes)
{
    return PANEL_SET_BYTES / panel_bytes > 1 ? PANEL_SET_BYTES / panel_bytes : 1;
}

/* For many tokens: a ticket is a chunk of units with one set of panels, small enough for the
 * cache. */
typedef struct schedule {
    int64_t units, chunk, chunks, panels, set, tickets;
} schedule;

typedef struct share {
    int64_t unit, unit_end, panel, panel_end;
} share;

static schedule schedule_of(const vt_lane *lane, int64_t units, int64_t panels, int64_t panel_bytes)
{
    schedule s = {.units = units, .chunk = units_per_ticket(units, lane), .panels = panels};
    s.chunks = vt_ceil_div(units, s.chunk);
    s.set = set_of(panel_bytes);
    s.tickets = s.chunks * vt_ceil_div(panels, s.set);
    return s;
}

static bool schedule_next(const schedule *s, const vt_lane *lane, share *out)
{
    int64_t i = take(lane);
    if (i >= s->tickets)
        return false;
    out->unit = i % s->chunks * s->chunk;
    out->unit_end = out->unit + s->chunk < s->units ? out->unit + s->chunk : s->units;
    out->panel = i / s->chunks * s->set;
    out->panel_end = out->panel + s->set < s->panels ? out->panel + s->set : s->panels;
    return true;
}

/* Bytes one worker needs: its own panel of one token, or a chunk of two tiles. */
static size_t worker_bytes(const vt_weight *w)
{
    size_t panel = (size_t)(w->cols / LINEAR_BLOCK * panel_block_bytes(1));
    size_t unpacked = 2 * CHUNK * (size_t)unpacked_bytes(linear_traits_of(w->dtype));
    return vt_round_up(panel > unpacked ? panel : unpacked, VT_CACHE_LINE);
}

static size_t simd_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    const linear_args *a = args;
    if (!vt_dtype_quantised(a->w->dtype))
        return 0;
    int64_t panels = vt_ceil_div(limits->max_tokens, PANEL);
    int64_t panel_bytes = a->w->cols / LINEAR_BLOCK * panel_block_bytes(PANEL);
    return worker_bytes(a->w) * (size_t)limits->n_workers + (size_t)(panels * panel_bytes);
}

static const float *token(const linear_args *a, int64_t t)
{
    return (const float *)a->x->data + t * a->x->row_stride;
}

#ifdef LINEAR_BF16 /* the including file has its own function for BF16 tiles and one token */
static void LINEAR_BF16(const linear_args *a, int n, const uint8_t *const *tile,
                        const uint8_t *panel, float *const *out);
#endif

/* One token's units: `n` of them lie as far apart in memory as the worker's part of the weights
 * allows, and tile k of each is computed at the same time. */
typedef struct stream_set {
    int n;
    unit u[STREAMS];
    tile_sums sum[STREAMS][2];
} stream_set;

/* sum[][k] of every unit of the set. x: the token's panel, or the token itself for float types. */
static void dot_streams(const linear_args *a, const linear_layout *l, stream_set *s, int k,
                        const void *x)
{
    const vt_weight *w = a->w;
    const uint8_t *tile[STREAMS];
    float *out[STREAMS];
    for (int r = 0; r < s->n; r++) {
        tile[r] = (uint8_t *)w->packed + (s->u[r].tile + k) * l->tile_bytes;
        out[r] = s->sum[r][k][0];
    }
    if (vt_dtype_quantised(w->dtype))
        dot_one(w->dtype, s->n, l, tile, x, out);
#ifdef LINEAR_BF16
    else if (linear_packed_type(w) == VT_BF16)
        LINEAR_BF16(a, s->n, tile, x, out);
#endif
    else
        dot_float_streams(linear_packed_type(w), s->n, w->cols, tile, x, out);
}

/* Computes units begin .. end - 1 for one token. */
static void one_token_units(const linear_args *a, const linear_layout *l, const void *x,
                            int64_t begin, int64_t end)
{
    const int per_unit = a->w->paired ? 2 : 1;
    const int64_t part = vt_ceil_div(end - begin, STREAMS);
    for (int64_t i = begin; i < begin + part; i++) {
        stream_set s;
        s.n = 0;
        for (int64_t j = i; j < end; j += part)
            unit_init(&s.u[s.n++], a, l, j, per_unit);
        for (int k = 0; k < per_unit; k++)
            dot_streams(a, l, &s, k, x);
        for (int r = 0; r < s.n; r++)
            unit_finish(&s.u[r], a, 0, 1, s.sum[r], NULL);
    }
}

/* Computes this worker's units of one token. Fixed shares have streams that never break off: 40
 * GB/s where eight tickets a worker gave 37. */
static void one_token(const linear_args *a, const linear_layout *l, const vt_lane *lane,
                      const void *x)
{
    int64_t begin, end, units = vt_ceil_div(l->n_tiles, a->w->paired ? 2 : 1);
    if (has_fixed_shares(1, lane)) {
        vt_lane_share(lane, units, 1, &begin, &end);
        one_token_units(a, l, x, begin, end);
        return;
    }
    int64_t chunk = units_per_ticket(units, lane);
    while ((begin = take(lane) * chunk) < units)
        one_token_units(a, l, x, begin, begin + chunk < units ? begin + chunk : units);
}

/* Where the streams of one token begin; an eighth of the second-level cache in all. Cores of
 * different speeds take tickets, so nobody knows there who reads what. */
static void simd_ahead(const void *args, const vt_lane *lane, vt_ahead *out)
{
    const linear_args *a = args;
    const vt_cpu *cpu = vt_cpu_get();
    if (!a->w->packed || a->x->dim[0] != 1 || linear_scaled(a->w) || cpu->uneven)
        return;
    linear_layout l = linear_layout_of(a->w);
    const int per_unit = a->w->paired ? 2 : 1;
    int64_t begin, end;
    vt_lane_share(lane, vt_ceil_div(l.n_tiles, per_unit), 1, &begin, &end);
    const int64_t part = vt_ceil_div(end - begin, STREAMS), one = per_unit * l.tile_bytes;
    for (int64_t j = begin; j < end; j += part)
        out->place[out->n++] = (const char *)a->w->packed + j * one;
    const int64_t last = end - begin - (out->n - 1) * part; /* units of the last stream */
    int64_t most = cpu->l2_bytes / 8 / STREAMS;
    out->bytes = last * one < most ? last * one : most;
}

static void run_one_token(const linear_args *a, const linear_layout *l, const vt_lane *lane)
{
    const vt_weight *w = a->w;
    const void *x = token(a, 0);
    if (vt_dtype_quantised(w->dtype)) {
        uint8_t *panel = (uint8_t *)lane->workspace + worker_bytes(w) * (size_t)lane->worker;
        quantise_one(w->dtype, x, w->cols, panel);
        x = panel;
    }
    one_token(a, l, lane, x);
}

static int tokens_of_panel(const linear_args *a, int64_t panel)
{
    int64_t rest = a->x->dim[0] - panel * PANEL;
    return (int)(rest < PANEL ? rest : PANEL);
}

/* Makes this worker's share of the blocks of all panels. A share of the tokens would be cut within
 * a panel, whose scales of one block are in one line: workers that write to it take it from each
 * other for every block. */
static void quantise_share(const linear_args *a, const linear_layout *l, const vt_lane *lane,
                           uint8_t *panels)
{
    const linear_traits tr = linear_traits_of(a->w->dtype);
    const int64_t bytes = panel_block_bytes(PANEL);
    int64_t begin, end, n_panels = vt_ceil_div(a->x->dim[0], PANEL);
    vt_lane_share(lane, n_panels * l->blocks, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        uint8_t *q = panels + i * bytes, *s = q + 32 * PANEL;
        int n = tokens_of_panel(a, i / l->blocks);
        for (int t = 0; t < n; t++)
            quantise_block(tr, token(a, i / l->blocks * PANEL + t) + i % l->blocks * LINEAR_BLOCK,
                           PANEL, q + 32 * t, (float *)s + t);
        /* Tokens that the last panel lacks may be computed and thrown away. Their scales are zero,
         * because old bytes could be denormal, which would be slow. */
        for (int k = 0; k < 3 && n < PANEL; k++)
            memset(s + 4 * (k * PANEL + n), 0, 4 * (size_t)(PANEL - n));
    }
}

#ifdef LINEAR_PANEL /* the including file has its own function for a panel */
static void LINEAR_PANEL(vt_dtype type, int64_t tokens, const block_run *c, tile_sums *sum);
/* Returns true of calls that it computes itself; all others it passes on to dot_panel. */
static bool LINEAR_OWN(vt_dtype type, int64_t tokens);
static bool LINEAR_SIGNED(vt_dtype type, int64_t tokens); /* it wants signed quants */
#else
#define LINEAR_PANEL(type, tokens, c, sum) ((void)(tokens), dot_panel(type, c, sum))
#define LINEAR_OWN(type, tokens) ((void)(type), (void)(tokens), false)
#define LINEAR_SIGNED(type, tokens) ((void)(tokens), false)
#endif

/* One unit and the panels of a group. */
typedef struct group_job {
    const linear_args *a;
    const linear_layout *l;
    const unit *u;
    uint8_t *unpacked;     /* [2][CHUNK] blocks */
    const uint8_t *panels; /* all */
    int64_t first;         /* panel of the group */
    int n_panels;
    bool ahead;  /* the packed tiles after the unit's are needed soon */
    bool packed; /* the unit's tiles are multiplied in their packed form */
} group_job;

/* Tiles of a unit for several tokens: what is multiplied at the same time, where that leaves every
 * worker enough units. */
static int tiles_of_unit(const vt_weight *w, const linear_layout *l, int workers, int64_t tokens)
{
    bool wide = TILES_AT_ONCE == 2 && !LINEAR_OWN(w->dtype, tokens) &&
                l->n_tiles >= 8 * (int64_t)workers;
    return w->paired || wide ? 2 : 1;
}

/* Computes one panel's share of the minima of a tile, or its products with c->tiles tiles. */
static void run_blocks(const group_job *j, const block_run *c, bool minima, tile_sums *sum,
                       float (*low)[LINEAR_TILE])
{
    const vt_dtype type = j->a->w->dtype;
    if (j->packed)
        packed_panel(type, c, minima, sum, low);
    else if (minima)
        min_panel(linear_traits_of(type).halves, c, low);
    else
        LINEAR_PANEL(type, j->a->x->dim[0], c, sum);
}

/* Multiplies blocks first .. first + n - 1 of the unit's tiles by all panels; after the last block
 * it applies the epilogue. The minima of all panels come first: on Sapphire Rapids 512-bit fp32
 * runs at half rate while the matrix unit is in use, and for about 0.4 us afterwards. */
static void run_chunk(const group_job *j, int64_t first, int64_t n, tile_sums (*sum)[2],
                      tile_sums (*low)[2])
{
    const vt_weight *w = j->a->w;
    const linear_traits tr = linear_traits_of(w->dtype);
    const bool all = n == j->l->blocks;
    const uint8_t *packed = (uint8_t *)w->packed + j->u->tile * j->l->tile_bytes;
    int64_t panel_bytes = j->l->blocks * panel_block_bytes(PANEL), tokens = j->a->x->dim[0];
    block_run c = {.blocks = n, .resume = first > 0, .apart = CHUNK * unpacked_bytes(tr)};
    c.ahead_bytes = j->l->tile_bytes / j->l->blocks;
    c.ahead_apart = j->l->tile_bytes;
    if (j->packed) {
        c.layout = j->l;
        c.first = first;
        c.apart = j->l->tile_bytes;
    }
    for (int k = 0; k < j->u->tiles && !j->packed; k++)
        unpack_blocks(w->dtype, LINEAR_SIGNED(w->dtype, tokens), j->l,
                      packed + k * j->l->tile_bytes, first, n, j->unpacked + k * c.apart);
    for (int pass = tr.min ? 0 : 1; pass < 2; pass++)
        for (int p = 0; p < j->n_panels; p++) {
            int s = all ? 0 : p; /* sums that are finished at once share one place */
            c.panel = j->panels + (j->first + p) * panel_bytes + first * panel_block_bytes(PANEL);
            c.n = tokens_of_panel(j->a, j->first + p);
            if (pass == 1)
                unit_prefetch(j->u, j->a, (j->first + p) * PANEL, c.n);
            for (int k = 0; k < j->u->tiles; k += c.tiles) {
                c.tiles = pass == 1 && k + TILES_AT_ONCE <= j->u->tiles ? TILES_AT_ONCE : 1;
                c.tile = (j->packed ? packed : j->unpacked) + k * c.apart;
                c.ahead = NULL;
                if (j->ahead && p == 0) /* its place in the unit after this one */
                    c.ahead = packed + (j->u->tiles + k) * c.ahead_apart + first * c.ahead_bytes;
                run_blocks(j, &c, pass == 0, &sum[s][k], low[p][k]);
            }
            if (pass == 1 && first + n == j->l->blocks)
                unit_finish(j->u, j->a, (j->first + p) * PANEL, c.n, sum[s],
                            tr.min ? low[p] : NULL);
        }
}

/* Computes unit i and panels first .. last - 1. `unpacked` is this worker's own. */
static void run_unit(const linear_args *a, const linear_layout *l, int64_t i, int per_unit,
                     uint8_t *unpacked, const uint8_t *panels, int64_t first, int64_t last)
{
    _Alignas(64) tile_sums sum[GROUP][2], low[GROUP][2];
    unit u;
    unit_init(&u, a, l, i, per_unit);
    group_job j = {.a = a, .l = l, .u = &u, .unpacked = unpacked, .panels = panels};
    j.packed = !LINEAR_OWN(a->w->dtype, a->x->dim[0]) &&
               dots_packed(linear_traits_of(a->w->dtype), a->x->dim[0]);
    const int64_t chunk = vt_ceil_div(l->blocks, vt_ceil_div(l->blocks, CHUNK)); /* all alike */
    for (j.first = first; j.first < last; j.first += GROUP) {
        j.n_panels = (int)(last - j.first < GROUP ? last - j.first : GROUP);
        j.ahead = j.first == first;
        for (int64_t b = 0; b < l->blocks; b += chunk)
            run_chunk(&j, b, l->blocks - b < chunk ? l->blocks - b : chunk, sum, low);
    }
}

static void run_tokens(const linear_args *a, const linear_layout *l, const vt_lane *lane)
{
    const vt_weight *w = a->w;
    int64_t tokens = a->x->dim[0], n_panels = vt_ceil_div(tokens, PANEL);
    int64_t panel_bytes = l->blocks * panel_block_bytes(PANEL);
    uint8_t *unpacked = (uint8_t *)lane->workspace + worker_bytes(w) * (size_t)lane->worker;
    uint8_t *panels = (uint8_t *)lane->workspace + worker_bytes(w) * (size_t)lane->n_workers;
    quantise_share(a, l, lane, panels);
    vt_team_barrier(lane->team, lane->worker);

    int per_unit = tiles_of_unit(w, l, lane->n_workers, tokens);
    int64_t units = vt_ceil_div(l->n_tiles, per_unit), begin, end;
    if (has_fixed_shares(tokens, lane)) {
        vt_lane_share(lane, units, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            run_unit(a, l, i, per_unit, unpacked, panels, 0, n_panels);
        return;
    }
    schedule s = schedule_of(lane, units, n_panels, panel_bytes);
    for (share sh; schedule_next(&s, lane, &sh);)
        for (int64_t i = sh.unit; i < sh.unit_end; i++)
            run_unit(a, l, i, per_unit, unpacked, panels, sh.panel, sh.panel_end);
}

/* out[tile][t][row] of n <= 16 tokens from t0 on, all segments. */
static void dot_segments(const linear_args *a, const linear_layout *l, const unit *u, int64_t t0,
                         int n, tile_sums *out)
{
    const vt_weight *w = a->w;
    const vt_dtype type = linear_packed_type(w);
    const uint8_t *tile = (uint8_t *)w->packed + u->tile * l->tile_bytes;
    int64_t cols = segment_cols(w), column_bytes = LINEAR_TILE * vt_dtype_get(type)->bytes;
    tile_sums part[FLOAT_TILES];
    for (int64_t k = 0; k < w->cols; k += cols) {
        int64_t some = w->cols - k < cols ? w->cols - k : cols;
        dot_float_panel(type, u->tiles, n, some, tile + k * column_bytes, l->tile_bytes,
                        token(a, t0) + k, a->x->row_stride, linear_scaled(w) ? part : out);
        if (linear_scaled(w))
            add_segment(u, w, k / cols, n, part, out);
    }
}

static void run_float(const linear_args *a, const linear_layout *l, const vt_lane *lane)
{
    const int per_unit = a->w->paired ? 2 : FLOAT_TILES;
    int64_t tokens = a->x->dim[0], units = vt_ceil_div(l->n_tiles, per_unit);
    int64_t chunk = units_per_ticket(units, lane);
    for (int64_t i; (i = take(lane) * chunk) < units;)
        for (int64_t j = i; j < i + chunk && j < units; j++) {
            unit u;
            tile_sums out[FLOAT_TILES];
            unit_init(&u, a, l, j, per_unit);
            for (int64_t t = 0; t < tokens; t += PANEL) {
                int n = (int)(tokens - t < PANEL ? tokens - t : PANEL);
                dot_segments(a, l, &u, t, n, out);
                unit_finish(&u, a, t, n, out, NULL);
            }
        }
}

static bool simd_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const linear_args *a = args; /* x and y are missing while weights are being packed */
    return (!a->x || a->x->dtype == VT_F32) && (!a->y || a->y->dtype == VT_F32) &&
           (vt_dtype_quantised(a->w->dtype) || a->w->dtype <= VT_FP8_E4M3) &&
           (a->epilogue == LINEAR_NONE || a->w->paired);
}

static vt_status simd_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (!a->w->packed)
        return VT_ERR_USAGE;
    linear_layout l = linear_layout_of(a->w);
    int64_t tokens = a->x->dim[0];
    if (tokens == 0)
        return VT_OK;
    if (tokens == 1 && !linear_scaled(a->w))
        run_one_token(a, &l, lane);
    else if (!vt_dtype_quantised(a->w->dtype))
        run_float(a, &l, lane);
    else
        run_tokens(a, &l, lane);
    return VT_OK;
}

/* Extra traffic: padding and unpacked scales; the weights again for every further set of panels;
 * and the copy of the activations in panels of `panel_bytes` (0: there is no copy), which is
 * written and read once. */
static vt_cost extra_of(const linear_args *a, int64_t tokens, int64_t panel_bytes)
{
    int64_t stored = 0, packed = (int64_t)linear_pack_bytes(a->w), sets = 1;
    for (int32_t i = 0; i < a->w->n_parts; i++)
        stored += a->w->part[i]->dim[0] * vt_dtype_row_bytes(a->w->dtype, a->w->cols);
    if (tokens == 0)
        return (vt_cost){0};
    if (panel_bytes)
        sets = vt_ceil_div(vt_ceil_div(tokens, PANEL), set_of(panel_bytes));
    int64_t copy = tokens * panel_bytes / PANEL;
    return (vt_cost){
        .read = {.weights = packed * sets - stored, .activations = copy},
        .write = {.activations = copy},
    };
}

static vt_cost simd_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const linear_args *a = args;
    bool panels = vt_dtype_quantised(a->w->dtype);
    return extra_of(a, vt_batch_rows(a->x, batch),
                    panels ? a->w->cols / LINEAR_BLOCK * panel_block_bytes(PANEL) : 0);
}

static void simd_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const linear_args *a = args;
    linear_layout l = linear_layout_of(a->w);
    int64_t tokens = vt_size_rows(a->x, size);
    bool quantised = vt_dtype_quantised(a->w->dtype);
    bool streams = tokens == 1 && !linear_scaled(a->w);
    int32_t per_unit = a->w->paired ? 2 : streams ? 1 : FLOAT_TILES;
    vt_lane lane = {.n_workers = t->limits.n_workers > 0 ? t->limits.n_workers : 1};
    if (quantised && !streams)
        per_unit = tiles_of_unit(a->w, &l, lane.n_workers, tokens);
    int64_t units = vt_ceil_div(l.n_tiles, per_unit), chunk = units_per_ticket(units, &lane);
    int64_t items = vt_ceil_div(units, chunk);
    if ((streams || quantised) && has_fixed_shares(tokens, &lane))
        items = units < lane.n_workers ? units : lane.n_workers;
    else if (quantised && tokens > 1)
        items = schedule_of(&lane, units, vt_ceil_div(tokens, PANEL),
                            l.blocks * panel_block_bytes(PANEL))
                    .tickets;
    linear_cut_shape(a, size, out);
    out->tile[0] = (int32_t)(tokens < PANEL ? tokens : PANEL);
    out->tile[1] = per_unit * LINEAR_TILE;
    vt_cut_cpu(out, t, items, VF * (int32_t)sizeof(float));
}
