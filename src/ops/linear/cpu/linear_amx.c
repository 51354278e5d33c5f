/* linear with AMX: a tile of 16 tokens times a tile of 16 weight rows in one instruction.
 *
 * Quantised types take 32 columns at a time, because every 32 have a scale of their own:
 *
 *   A  16 tokens x 32 int8     the panel's quants, as they lie in memory
 *   B  8 groups x 16 rows x 4  an unpacked block, signed where the type has no minima
 *   C  16 tokens x 16 rows     int32, stored to a buffer of 1 KiB, read back row by row,
 *                              converted, scaled and added to 16 vectors of fp32 sums
 *
 * The int32 sums equal those of vpdpbusd with its correction, and the arithmetic after them is the
 * same. So few tokens take the AVX-512 kernels and get the same bits.
 *
 * Limits (bench/notes/cpu.md; a Xeon with AMX, one thread, everything in cache, ticks of the time
 * stamp counter, 0.76 to 0.79 a cycle): a 16 x 16 x 32 block takes 46. Loading, multiplying and
 * storing tiles take 31 alone, scaling and adding sums 26. While the matrix unit is in use, the
 * second 512-bit fp32 unit is not available (64 fma take twice as long beside a mere tilezero), so
 * the 48 conversions, products and sums of a block cannot take less than 37. A fourth operation for
 * each 16 results costs 5: so quants are signed, which needs no correction of the int32 sums, and
 * minima are summed separately (run_chunk). Sums that are added in the step that stores them, with
 * loads behind the store, took 11 more.
 *
 * Rejected: converting weights to bf16, with C summing over all of K and no scaling in the loop. A
 * single token would have to do the same to get the same bits. Built and measured: prompts gain
 * where the matrix unit runs at its full rate, but the machines at hand mostly run it at a quarter
 * of that. There prompts gain nothing, and one token takes twice as long.
 *
 * BF16 weights stay exact; activations are split into two bf16, x = hi + lo, which keeps 16 bits of
 * their mantissa, and C holds fp32 sums over all of K:  C += hi B, C += lo B, 32 columns after 32.
 * vpdpbf16 and fma round differently, so here one token is a tile of one row.
 *
 * Tiles are configured when a call begins and released when it ends, because the operating system
 * has to save 8 KiB at each switch of a thread that holds tile data. */
#define LINEAR_PANEL amx_panel
#define LINEAR_OWN uses_tiles
#define LINEAR_SIGNED amx_signed
#define LINEAR_BF16 dot_bf16_streams
#include "ops/linear/cpu/linear_simd.h"
#include "ops/linear/cpu/amx_tile.h"

/* A call with fewer tokens than this takes the AVX-512 kernels. */
enum { AMX_TOKENS = 5 };

/* ---- quantised weights ---- */

typedef int32_t sums[PANEL][LINEAR_TILE];

/* acc[t] += the sums of a block, like add_block: what add_block adds to the int32 sums for the
 * offset of the type is in the signed quants here. s: d [16] */
INLINE void add_sums(int T, sums sum, const uint8_t *w, const float *s, vf *acc)
{
    vf d = vf_load(w + 512);
    UNROLL16
    for (int t = 0; t < T; t++)
        acc[t] = vf_fma(vf_of_int(vi_load(sum[t])), vf_mul(d, vf_set1(s[t])), acc[t]);
}

/* c = a b; the quants of types without minima are signed. */
#define AMX_PRODUCT(c, a, b)      \
    do {                          \
        TILE_ZERO(c);             \
        if (tr.min)               \
            TILE_DOT_SU(c, a, b); \
        else                      \
            TILE_DOT_SS(c, a, b); \
    } while (0)

/* Block b, whose product is in tile register c; c2, a2 and b2 become those of the block after it.
 * Its loads come before the store: a load after it waits for it wherever their addresses have the
 * same last 12 bits. The sums that are added are those of the block before, so neither the store
 * nor the product is waited for. */
#define AMX_BLOCK(c, c2, a2, b2)                                   \
    do {                                                           \
        if (b + 1 < blocks) {                                      \
            TILE_LOAD(a2, q + step, 32);                           \
            TILE_LOAD(b2, w + UNPACKED_BLOCK, 64);                 \
        }                                                          \
        TILE_STORE(c, sum[b & 1], 64);                             \
        if (b + 1 < blocks) {                                      \
            AMX_PRODUCT(c2, a2, b2);                               \
        }                                                          \
        prefetch_ahead(&ahead, 1, b);                              \
        if (b > 0)                                                 \
            add_sums(T, sum[(b - 1) & 1], w - UNPACKED_BLOCK,      \
                     (const float *)(q - step + 32 * PANEL), acc); \
        b++, w += UNPACKED_BLOCK, q += step;                       \
    } while (0)

/* The first T tokens (a constant) of a panel. The matrix unit works on one block while the sums of
 * the block before the one just stored are scaled and added. */
INLINE void amx_tokens(linear_traits tr, int T, const block_run *c, float (*out)[LINEAR_TILE])
{
    _Alignas(64) sums sum[2];
    vf acc[PANEL];
    UNROLL16
    for (int t = 0; t < T; t++)
        acc[t] = c->resume ? vf_load(out[t]) : vf_zero();
    const int64_t step = panel_block_bytes(PANEL), blocks = c->blocks;
    const uint8_t *w = c->tile, *q = c->panel;
    const block_run ahead = *c; /* in registers: the tile instructions clobber memory */
    TILE_LOAD(1, q, 32);
    TILE_LOAD(2, w, 64);
    AMX_PRODUCT(0, 1, 2);
    for (int64_t b = 0; b < blocks;) {
        AMX_BLOCK(0, 3, 4, 5);
        if (b < blocks)
            AMX_BLOCK(3, 0, 1, 2);
    }
    add_sums(T, sum[(blocks - 1) & 1], w - UNPACKED_BLOCK, (const float *)(q - step + 32 * PANEL),
             acc);
    UNROLL16
    for (int t = 0; t < T; t++)
        vf_store(out[t], acc[t]);
}

/* The number of rows of the tiles for n tokens; amx_tokens is compiled for these numbers. */
INLINE int tile_tokens(int64_t n) { return n <= 8 ? 8 : n <= 12 ? 12 : 16; }

INLINE void amx_sets(linear_traits tr, const block_run *c, float (*out)[LINEAR_TILE])
{
    if (tile_tokens(c->n) == 8)
        amx_tokens(tr, 8, c, out);
    else if (tile_tokens(c->n) == 12)
        amx_tokens(tr, 12, c, out);
    else
        amx_tokens(tr, 16, c, out);
}

/* Returns true if tiles are faster: not for few tokens, and not if 16 columns have a scale (Q6_K:
 * 90 cycles with tiles and 92 without; for 8 tokens 57 and 46). */
static bool uses_tiles(vt_dtype type, int64_t tokens)
{
    linear_traits tr = linear_traits_of(type);
    return tr.bits && !tr.halves && tokens >= AMX_TOKENS;
}

static bool amx_signed(vt_dtype type, int64_t tokens)
{
    return uses_tiles(type, tokens) && !linear_traits_of(type).min;
}

NOINLINE void amx_tile(vt_dtype type, const block_run *c, float (*out)[LINEAR_TILE])
{
    if (linear_traits_of(type).min)
        amx_sets(linear_traits_of(VT_Q4_1), c, out);
    else
        amx_sets(linear_traits_of(VT_Q8_0), c, out);
}

/* dot_panel, with tiles if they are faster for a call of `tokens`: quants are signed then. */
static void amx_panel(vt_dtype type, int64_t tokens, const block_run *c, tile_sums *out)
{
    if (!uses_tiles(type, tokens)) {
        dot_panel(type, c, out);
        return;
    }
    block_run one = *c;
    for (int k = 0; k < c->tiles; k++, one.tile += c->apart) {
        one.ahead = c->ahead ? c->ahead + k * c->ahead_apart : NULL;
        amx_tile(type, &one, out[k]);
    }
}

/* C 0, A 1, B 2 of the even blocks, C 3, A 4, B 5 of the odd ones. */
static void configure_quantised(int64_t tokens)
{
    tile_config c = {
        .palette = 1, .row_bytes = {64, 32, 64, 64, 32, 64}, .rows = {0, 0, 8, 0, 0, 8}};
    c.rows[0] = c.rows[1] = c.rows[3] = c.rows[4] = (uint8_t)tile_tokens(tokens);
    tile_configure(&c);
}

/* ---- BF16 weights ---- */

/* Columns of a tile; bytes of one row; bytes that the streams of one token are prefetched ahead:
 * 26 GB/s, 23.5 with 8 KiB, 17 without, and 21 as one stream (two Xeon cores). */
enum { STEP = 32, ROW_BYTES = 2 * STEP, BF16_AHEAD = 2048 };

/* A panel of P tokens: for each 32 columns, hi [P][32] and lo [P][32] as bf16. */
static int64_t split_panel_bytes(const vt_weight *w, int64_t tokens)
{
    return vt_ceil_div(w->cols, STEP) * 2 * tokens * ROW_BYTES;
}

/* x = hi + lo + an error of 2^-17 |x|; zeros beyond the last column. */
static void split(const float *x, int64_t cols, int panel, int token, uint8_t *dst)
{
    for (int64_t k = 0; k < cols; k += VF) {
        vf v = vf_load_some(x + k, cols - k);
        __m256bh hi = _mm512_cvtneps_pbh(v);
        vf back = vf_bits(VI_SLLI32(_mm512_cvtepu16_epi32((__m256i)hi), 16));
        __m256bh lo = _mm512_cvtneps_pbh(_mm512_sub_ps(v, back));
        uint8_t *q = dst + k / STEP * 2 * panel * ROW_BYTES + token * ROW_BYTES + k % STEP * 2;
        _mm256_storeu_si256((__m256i *)q, (__m256i)hi);
        _mm256_storeu_si256((__m256i *)(q + panel * ROW_BYTES), (__m256i)lo);
        if (k + VF >= cols && k % STEP == 0) { /* the second half of the last 32 columns */
            _mm256_storeu_si256((__m256i *)(q + 2 * VF), _mm256_setzero_si256());
            _mm256_storeu_si256((__m256i *)(q + 2 * VF + panel * ROW_BYTES),
                                _mm256_setzero_si256());
        }
    }
}

typedef tile_sums sums_of_panel[2]; /* of the unit's tiles */

/* out[panel] for R tiles and N panels (constants, 1 or 2) of P tokens. C 0 .. 3 belong to
 * (panel 0, tile 0), (0, 1), (1, 0), (1, 1); A 4 and 5 to the panels; B 6 and 7 to the tiles. */
INLINE void amx_float(int R, int N, int P, int64_t steps, const uint8_t *tile, int64_t tile_bytes,
                      const uint8_t *panel, int64_t panel_bytes, sums_of_panel *out)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t i = 0; i < steps; i++) {
        const uint8_t *w = tile + i * STEP * LINEAR_TILE * 2, *q = panel + i * 2 * P * ROW_BYTES;
        TILE_LOAD(6, w, 64);
        if (R == 2)
            TILE_LOAD(7, w + tile_bytes, 64);
        for (int part = 0; part < 2; part++, q += P * ROW_BYTES) {
            TILE_LOAD(4, q, ROW_BYTES);
            TILE_DOT_BF16(0, 4, 6);
            if (R == 2)
                TILE_DOT_BF16(1, 4, 7);
            if (N == 2) {
                TILE_LOAD(5, q + panel_bytes, ROW_BYTES);
                TILE_DOT_BF16(2, 5, 6);
                if (R == 2)
                    TILE_DOT_BF16(3, 5, 7);
            }
        }
    }
    TILE_STORE(0, out[0][0], 64);
    if (R == 2)
        TILE_STORE(1, out[0][1], 64);
    if (N == 2)
        TILE_STORE(2, out[1][0], 64);
    if (N == 2 && R == 2)
        TILE_STORE(3, out[1][1], 64);
}

/* C `c` += A 4 B and A 5 B, B being step i of tile c, which is loaded into tile register b. */
#define ADD_STREAM(c, b)                                              \
    do {                                                              \
        const uint8_t *w = tile[c] + i * STEP * LINEAR_TILE * 2;      \
        for (int line = 0; line < STEP * LINEAR_TILE * 2; line += 64) \
            _mm_prefetch(w + BF16_AHEAD + line, _MM_HINT_T0);         \
        TILE_LOAD(b, w, 64);                                          \
        TILE_DOT_BF16(c, 4, b);                                       \
        TILE_DOT_BF16(c, 5, b);                                       \
    } while (0)

/* out[i][row] of one token for STREAMS tiles that lie apart. C 0 .. 3 belong to the tiles, A 4 to
 * hi and 5 to lo. */
NOINLINE void amx_streams(int64_t steps, const uint8_t *const *tile, const uint8_t *panel,
                          float *const *out)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t i = 0; i < steps; i++, panel += 2 * ROW_BYTES) {
        TILE_LOAD(4, panel, ROW_BYTES);
        TILE_LOAD(5, panel + ROW_BYTES, ROW_BYTES);
        ADD_STREAM(0, 6);
        ADD_STREAM(1, 7);
        ADD_STREAM(2, 6);
        ADD_STREAM(3, 7);
    }
    TILE_STORE(0, out[0], 64);
    TILE_STORE(1, out[1], 64);
    TILE_STORE(2, out[2], 64);
    TILE_STORE(3, out[3], 64);
}

/* Tiles of `tokens` rows (A, C) and of 16 pairs of columns (B). */
static void configure_float(int tokens)
{
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i < 6 ? tokens : 16);
        c.row_bytes[i] = 64;
    }
    tile_configure(&c);
}

typedef struct float_job {
    const linear_args *a;
    const linear_layout *l;
    const uint8_t *panels;
    int64_t panel_bytes;
} float_job;

/* n panels (0: one token) and the unit's tiles, 32 * steps columns. */
NOINLINE void float_panels(const float_job *j, int tiles, int n, int64_t steps, const uint8_t *tile,
                           const uint8_t *panel, sums_of_panel *out)
{
    int64_t bytes = j->l->tile_bytes;
    if (tiles == 2 && n == 2)
        amx_float(2, 2, PANEL, steps, tile, bytes, panel, j->panel_bytes, out);
    else if (tiles == 2 && n == 1)
        amx_float(2, 1, PANEL, steps, tile, bytes, panel, j->panel_bytes, out);
    else if (tiles == 2)
        amx_float(2, 1, 1, steps, tile, bytes, panel, 0, out);
    else if (n == 2)
        amx_float(1, 2, PANEL, steps, tile, bytes, panel, j->panel_bytes, out);
    else if (n == 1)
        amx_float(1, 1, PANEL, steps, tile, bytes, panel, j->panel_bytes, out);
    else
        amx_float(1, 1, 1, steps, tile, bytes, panel, 0, out);
}

/* The same over all columns, with the scales of FP8 applied. */
static void float_segments(const float_job *j, const unit *u, int n, const uint8_t *panel,
                           sums_of_panel *out)
{
    const vt_weight *w = j->a->w;
    _Alignas(64) sums_of_panel part[2];
    const uint8_t *tile = (uint8_t *)w->packed + u->tile * j->l->tile_bytes;
    int64_t cols = segment_cols(w), step_bytes = 2 * (n ? PANEL : 1) * ROW_BYTES;
    for (int64_t k = 0; k < w->cols; k += cols) {
        int64_t steps = vt_ceil_div(w->cols - k < cols ? w->cols - k : cols, STEP);
        float_panels(j, u->tiles, n, steps, tile + k * LINEAR_TILE * 2,
                     panel + k / STEP * step_bytes, linear_scaled(w) ? part : out);
        for (int i = 0; linear_scaled(w) && (i < n || i == 0); i++)
            add_segment(u, w, k / cols, n ? PANEL : 1, part[i], out[i]);
    }
}

/* Computes two tiles (unit i) and panels first .. last - 1, two at a time. */
static void float_unit(const float_job *j, int64_t i, int64_t first, int64_t last)
{
    _Alignas(64) sums_of_panel out[2];
    int64_t tokens = j->a->x->dim[0];
    unit u;
    unit_init(&u, j->a, j->l, i, 2);
    if (tokens == 1) {
        float_segments(j, &u, 0, j->panels, out);
        unit_finish(&u, j->a, 0, 1, out[0], NULL);
        return;
    }
    for (int64_t p = first; p < last; p += 2) {
        int n = p + 1 < last ? 2 : 1;
        int64_t t = p * PANEL, end = t + n * PANEL < tokens ? t + n * PANEL : tokens;
        unit_prefetch(&u, j->a, t, end - t);
        float_segments(j, &u, n, j->panels + p * j->panel_bytes, out);
        for (int k = 0; k < n; k++, t += PANEL)
            unit_finish(&u, j->a, t, end - t < PANEL ? end - t : PANEL, out[k], NULL);
    }
}

/* n <= STREAMS tiles of BF16 weights without scales and one token. Tiles have one row. */
static void dot_bf16_streams(const linear_args *a, int n, const uint8_t *const *tile,
                             const uint8_t *panel, float *const *out)
{
    int64_t steps = vt_ceil_div(a->w->cols, STEP);
    if (n == STREAMS)
        amx_streams(steps, tile, panel, out);
    else
        for (int i = 0; i < n; i++)
            amx_float(1, 1, 1, steps, tile[i], 0, panel, 0, (sums_of_panel *)out[i]);
}

static void run_bf16(const linear_args *a, const vt_lane *lane)
{
    linear_layout l = linear_layout_of(a->w);
    int64_t tokens = a->x->dim[0], own = split_panel_bytes(a->w, 1);
    uint8_t *shared = lane->workspace, *panels = shared + own * lane->n_workers;
    float_job j = {a, &l, panels, split_panel_bytes(a->w, PANEL)};
    configure_float(tokens == 1 ? 1 : PANEL);
    if (tokens == 1) {
        j.panels = shared + own * lane->worker;
        split(token(a, 0), a->w->cols, 1, 0, shared + own * lane->worker);
        if (!linear_scaled(a->w)) {
            one_token(a, &l, lane, j.panels);
            tile_release();
            return;
        }
    } else {
        int64_t begin, end;
        vt_lane_share(lane, tokens, 1, &begin, &end);
        for (int64_t t = begin; t < end; t++)
            split(token(a, t), a->w->cols, PANEL, (int)(t % PANEL),
                  panels + t / PANEL * j.panel_bytes);
        vt_team_barrier(lane->team, lane->worker);
    }
    int64_t n_panels = vt_ceil_div(tokens, PANEL), units = vt_ceil_div(l.n_tiles, 2);
    schedule s = schedule_of(lane, units, n_panels, j.panel_bytes);
    for (share sh; schedule_next(&s, lane, &sh);)
        for (int64_t i = sh.unit; i < sh.unit_end; i++)
            float_unit(&j, i, sh.panel, sh.panel_end);
    tile_release();
}

/* ---- the table's entry ---- */

static size_t amx_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    const linear_args *a = args;
    if (linear_packed_type(a->w) != VT_BF16)
        return simd_workspace(args, t);
    int64_t panels = vt_ceil_div(limits->max_tokens, PANEL);
    return (size_t)(split_panel_bytes(a->w, 1) * limits->n_workers +
                    split_panel_bytes(a->w, PANEL) * panels);
}

static vt_status amx_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (linear_packed_type(a->w) == VT_BF16 && a->w->packed && a->x->dim[0] > 0) {
        run_bf16(a, lane);
        return VT_OK;
    }
    bool tiles = uses_tiles(a->w->dtype, a->x->dim[0]);
    if (tiles)
        configure_quantised(a->x->dim[0]);
    vt_status status = simd_run(args, lane);
    if (tiles)
        tile_release();
    return status;
}

static vt_cost amx_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    const linear_args *a = args;
    if (linear_packed_type(a->w) != VT_BF16)
        return simd_extra(args, t, batch);
    return extra_of(a, vt_batch_rows(a->x, batch), split_panel_bytes(a->w, PANEL));
}

static void amx_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const linear_args *a = args;
    simd_describe(args, t, size, out);
    int64_t tokens = vt_size_rows(a->x, size);
    if (linear_packed_type(a->w) != VT_BF16 || (tokens == 1 && !linear_scaled(a->w)))
        return;
    vt_lane lane = {.n_workers = out->workers};
    schedule s = schedule_of(&lane, vt_ceil_div(linear_layout_of(a->w).n_tiles, 2),
                             vt_ceil_div(tokens, PANEL), split_panel_bytes(a->w, PANEL));
    out->tile[2] = STEP;
    vt_cut_cpu(out, t, s.tickets, 64); /* a row of a tile */
}

const vt_impl linear_amx = {
    .name = "amx",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AMX,
    .supports = simd_supports,
    .run = amx_run,
    .ahead = simd_ahead,
    .describe = amx_describe,
    .packing = &linear_tile_packing,
    .workspace = amx_workspace,
    .extra = amx_extra,
};
