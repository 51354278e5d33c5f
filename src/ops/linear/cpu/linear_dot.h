/* int8 products of quantised weights and quantised activations: the kernels of linear for one tile
 * of 16 rows, compiled once per instruction set (linear_simd.h describes how they are used).
 *
 * Activations, per token and 32 columns: d = max|x| / 127, q = round(x / d), and a correction c
 * made from sum(q): for types with an offset, -offset * sum(q), where the int32 sum starts; for
 * types with minima, +-d * sum(q). They lie in panels of P tokens (P = 1 or 16):
 *
 *   block of a panel:  q [P][32] int8 | d [P] fp32 | c [P] | c of the last 16 columns [P]
 *
 * Weights come packed (linear_pack.h) for one token or a few, or unpacked for many:
 *
 *   unpacked block:    q [8 groups][16 rows][4] unsigned | d [16] fp32 | e [16] fp32
 *
 * where e is the minimum, or the scale of the last 16 columns. Q2_K, whose scales of 16 columns
 * have minima, has two more vectors: of the first and of the last 16 columns. */
#ifndef VT_OPS_LINEAR_DOT_H
#define VT_OPS_LINEAR_DOT_H

#include <assert.h>

#include "ops/linear/cpu/linear_vec.h"

enum {
    PANEL = 16,                    /* tokens */
    UNPACKED_BLOCK = 512 + 2 * 64, /* bytes, without the minima of 16 columns each */
    UNPACKED_MOST = UNPACKED_BLOCK + 2 * 64,
    PACKED_TOKENS = 4, /* without vpdpbusd: most tokens that unpack for themselves */
    /* One token: tiles at once, and bytes ahead in the stream of each. Two Xeon cores read Q4_0 at
     * 40 GB/s as four streams, at 37 as two, and at 27 as one with 2 KiB ahead and the scales left
     * to the hardware. 4 and 16 KiB ahead are up to 10 % slower. */
    STREAMS = VF == 4 ? 2 : 4, /* NEON has 32 registers for 4 parts of a tile */
    AHEAD = 8192,
};

/* ---- weights of one block, VF rows ---- */

typedef struct weight_block {
    vi q[8]; /* groups of 4 columns, unsigned */
    vf d, e; /* scale; minimum, or the scale of the last 16 columns */
    vf m[2]; /* minima of the first and of the last 16 columns, if they have some */
} weight_block;

INLINE void load_quants(int bits, const uint8_t *p, vi *q)
{
    if (bits == 8) {
        UNROLL
        for (int g = 0; g < 8; g++)
            q[g] = vi_load(p + 64 * g);
        return;
    }
    const vi low = vi_set8(15), fifth = vi_set8(16), top = vi_set8(48), two = vi_set8(3);
    if (bits == 2) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            vi h = vi_load(p + 64 * i);
            q[4 * i] = vi_and(h, two);
            q[4 * i + 1] = vi_and(VI_SRLI16(h, 2), two);
            q[4 * i + 2] = vi_and(VI_SRLI16(h, 4), two);
            q[4 * i + 3] = vi_and(VI_SRLI16(h, 6), two);
        }
        return;
    }
    UNROLL
    for (int g = 0; g < 4; g++) {
        vi both = vi_load(p + 64 * g);
        q[g] = vi_and(both, low);
        q[g + 4] = vi_and(VI_SRLI16(both, 4), low);
    }
    if (bits == 5) {
        vi h = vi_load(p + 256);
        q[0] = vi_or(q[0], vi_and(VI_SLLI16(h, 4), fifth));
        q[1] = vi_or(q[1], vi_and(VI_SLLI16(h, 3), fifth));
        q[2] = vi_or(q[2], vi_and(VI_SLLI16(h, 2), fifth));
        q[3] = vi_or(q[3], vi_and(VI_SLLI16(h, 1), fifth));
        q[4] = vi_or(q[4], vi_and(h, fifth));
        q[5] = vi_or(q[5], vi_and(VI_SRLI16(h, 1), fifth));
        q[6] = vi_or(q[6], vi_and(VI_SRLI16(h, 2), fifth));
        q[7] = vi_or(q[7], vi_and(VI_SRLI16(h, 3), fifth));
    }
    if (bits == 6) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            vi h = vi_load(p + 256 + 64 * i);
            q[4 * i] = vi_or(q[4 * i], vi_and(VI_SLLI16(h, 4), top));
            q[4 * i + 1] = vi_or(q[4 * i + 1], vi_and(VI_SLLI16(h, 2), top));
            q[4 * i + 2] = vi_or(q[4 * i + 2], vi_and(h, top));
            q[4 * i + 3] = vi_or(q[4 * i + 3], vi_and(VI_SRLI16(h, 2), top));
        }
    }
}

/* The scales and minima of block b of a packed tile, rows VF h .. of it. */
INLINE void load_scales(vt_dtype type, const linear_layout *l, const uint8_t *tile, int64_t b,
                        int h, weight_block *w)
{
    const linear_traits tr = linear_traits_of(type);
    const uint8_t *s = tile + l->scales_at + b * linear_scale_bytes(tr);
    if (!tr.k) {
        w->d = tr.power ? vf_load_bf16((const uint16_t *)(s + 2 * VF * h))
                        : vf_load_f16(s + 2 * VF * h);
        w->e = tr.min ? vf_load_f16(s + 32 + 2 * VF * h) : vf_zero();
        return;
    }
    const uint8_t *d = tile + l->supers_at + b / 8 * 64;
    vf of_256 = vf_load_f16(d + 2 * VF * h);
    if (tr.halves && tr.min) {
        const vi low = vi_set(15);
        vf m_of_256 = vf_load_f16(d + 32 + 2 * VF * h);
        vi first = vi_of_u8(s + VF * h), last = vi_of_u8(s + 16 + VF * h);
        w->d = vf_mul(of_256, vf_of_int(vi_and(first, low)));
        w->e = vf_mul(of_256, vf_of_int(vi_and(last, low)));
        w->m[0] = vf_mul(m_of_256, vf_of_int(VI_SRLI16(first, 4)));
        w->m[1] = vf_mul(m_of_256, vf_of_int(VI_SRLI16(last, 4)));
    } else if (tr.halves) {
        w->d = vf_mul(of_256, vf_of_int(vi_of_i8(s + VF * h)));
        w->e = vf_mul(of_256, vf_of_int(vi_of_i8(s + 16 + VF * h)));
    } else {
        w->d = vf_mul(of_256, vf_of_int(vi_of_u8(s + VF * h)));
        w->e = vf_mul(vf_load_f16(d + 32 + 2 * VF * h), vf_of_int(vi_of_u8(s + 16 + VF * h)));
    }
}

/* Block b of a packed tile, rows VF h .. of it. */
INLINE void load_packed(vt_dtype type, const linear_layout *l, const uint8_t *tile, int64_t b,
                        int h, weight_block *w)
{
    const linear_traits tr = linear_traits_of(type);
    load_quants(tr.bits, tile + b * linear_quant_bytes(tr) + 4 * VF * h, w->q);
    load_scales(type, l, tile, b, h, w);
}

/* Bytes less the offset of their type. Only AMX has products of two signed bytes. */
INLINE vi less_offset(vi q, int offset)
{
#if defined(__AVX512F__)
    return _mm512_sub_epi8(q, vi_set8(offset));
#else
    assert(!"signed quants");
    return (void)offset, q;
#endif
}

INLINE int unpacked_bytes(linear_traits tr)
{
    return tr.halves && tr.min ? UNPACKED_MOST : UNPACKED_BLOCK;
}

INLINE void load_unpacked(const uint8_t *block, int h, weight_block *w)
{
    UNROLL
    for (int g = 0; g < 8; g++)
        w->q[g] = vi_load(block + 64 * g + 4 * VF * h);
    w->d = vf_load(block + 512 + 4 * VF * h);
    w->e = vf_load(block + 576 + 4 * VF * h);
}

/* Blocks first .. first + n - 1 of a packed tile, quant - offset if `is_signed`. */
INLINE void unpack(vt_dtype type, bool is_signed, const linear_layout *l, const uint8_t *tile,
                   int64_t first, int64_t n, uint8_t *dst)
{
    const linear_traits tr = linear_traits_of(type);
    for (int64_t b = first; b < first + n; b++, dst += unpacked_bytes(tr))
        for (int h = 0; h < HALVES; h++) {
            weight_block w;
            load_packed(type, l, tile, b, h, &w);
            UNROLL
            for (int g = 0; g < 8; g++)
                vi_store(dst + 64 * g + 4 * VF * h,
                         is_signed ? less_offset(w.q[g], tr.offset) : w.q[g]);
            vf_store((float *)(dst + 512) + VF * h, w.d);
            vf_store((float *)(dst + 576) + VF * h, w.e);
            for (int i = 0; i < 2 && tr.halves && tr.min; i++)
                vf_store((float *)(dst + 640 + 64 * i) + VF * h, w.m[i]);
        }
}

/* How the weights of a call lie, and what their arithmetic asks for. Unpacked types may share a
 * form. It is a constant wherever it is used. */
typedef struct weight_form {
    linear_traits tr;
    bool packed;
    vt_dtype type; /* of packed ones */
} weight_form;

#define UNPACKED(...) ((weight_form){.tr = {__VA_ARGS__}})
#define PACKED(TYPE) ((weight_form){linear_traits_of(TYPE), true, TYPE})

/* ---- the exact part: sums of int8 products ---- */

/* 1: quants of 8 bits are multiplied as unsigned ones, as all others are. */
#if defined(VNNI)
enum { UNSIGNED = 1 };
#else
enum { UNSIGNED = 0 };
#endif

/* sum[t] += products of n groups of 4 columns from g0 on with the bytes of T tokens (constants),
 * which lie 32 apart from x. */
#if defined(__aarch64__)
/* sdot wants both sides signed: quants of 8 bits are made so again, which needs no correction, and
 * those of fewer bits are below 128. */
INLINE void dot(linear_traits tr, const weight_block *w, int g0, int n, const uint8_t *x, int T,
                vi *sum)
{
    const int8x16_t flip = vdupq_n_s8(tr.bits == 8 ? -128 : 0);
    UNROLL
    for (int g = g0; g < g0 + n; g++) {
        int8x16_t q = veorq_s8(vreinterpretq_s8_s32(w->q[g]), flip);
        UNROLL
        for (int t = 0; t < T; t++)
            sum[t] = vdotq_s32(sum[t], q,
                               vreinterpretq_s8_s32(vi_set(load_i32(x + 32 * t + 4 * g))));
    }
}
#elif defined(VNNI)
INLINE void dot(linear_traits tr, const weight_block *w, int g0, int n, const uint8_t *x, int T,
                vi *sum)
{
    (void)tr;
    UNROLL
    for (int g = g0; g < g0 + n; g++) {
        UNROLL
        for (int t = 0; t < T; t++)
            sum[t] = vi_dot(sum[t], w->q[g], vi_set(load_i32(x + 32 * t + 4 * g)));
    }
}
#else
/* vpmaddubsw adds two products in int16. Sums of 8 groups fit for 4-bit quants (8 * 2 * 15 * 127 <
 * 2^15), of 4 groups for 5-bit and of 2 groups for 6-bit quants. For 8-bit quants not even one
 * group would fit. Their weights are made signed again, and the sign is moved to the activation;
 * then no correction is needed. */
INLINE void dot(linear_traits tr, const weight_block *w, int g0, int n, const uint8_t *x, int T,
                vi *sum)
{
    const vi one = _mm256_set1_epi16(1);
    const int fit = tr.bits == 8 ? 1 : tr.bits == 4 ? 8 : tr.bits == 6 ? 2 : 4;
    vi part[8];
    UNROLL
    for (int g = g0; g < g0 + n; g++) {
        vi q = w->q[g], s = q;
        if (tr.bits == 8) {
            s = _mm256_xor_si256(q, vi_set8(-128));
            q = _mm256_abs_epi8(s);
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            vi v = vi_set(load_i32(x + 32 * t + 4 * g));
            v = _mm256_maddubs_epi16(q, tr.bits == 8 ? _mm256_sign_epi8(v, s) : v);
            part[t] = g % fit ? _mm256_add_epi16(part[t], v) : v;
            if (g % fit == fit - 1)
                sum[t] = vi_add(sum[t], _mm256_madd_epi16(part[t], one));
        }
    }
}
#endif

/* Sets the initial values of a block's sum[0..T): the correction for the type's offset. c: see
 * above. */
INLINE void dot_begin(linear_traits tr, const float *c, int T, vi *sum)
{
    UNROLL
    for (int t = 0; t < T; t++)
        sum[t] = tr.min || (!UNSIGNED && tr.bits == 8) ? vi_set(0) : vi_set(load_i32(c + t));
}

/* ---- activations ---- */

static int64_t panel_block_bytes(int64_t tokens) { return tokens * (32 + 3 * 4); }

/* One block of one token: x[0..32) to q[0..32) and s[0], s[P], s[2 P] = d, c, c of the last half.
 * Magnitudes are compared as integers, so a NaN is the largest of all, becomes d and stays visible
 * in the result. Blocks below 1e-30 count as zeros: 127 / max would overflow. */
INLINE void quantise_block(linear_traits tr, const float *x, int panel, uint8_t *q, float *s)
{
    enum { N = LINEAR_BLOCK / VF };
    const vi magnitude = vi_set(0x7fffffff);
    vf v[N];
    vi quant[N], top = vi_set(0);
    UNROLL
    for (int i = 0; i < N; i++) {
        v[i] = vf_load(x + VF * i);
        top = vi_max(top, vi_and(vi_bits(v[i]), magnitude));
    }
    int32_t bits = vi_max_all(top);
    float peak;
    memcpy(&peak, &bits, sizeof peak);
    bool tiny = peak < 1e-30f;
    float d = tiny ? 0 : peak * (1.0f / 127);
    vf inverse = vf_set1(tiny ? 0 : 127 / peak);
    UNROLL
    for (int i = 0; i < N; i++)
        quant[i] = vi_of_float(vf_max(vf_mul(v[i], inverse), vf_set1(-127))); /* NaN: -127 */
#if defined(__aarch64__)
    vi first = vi_set(0), last = first;
    UNROLL
    for (int i = 0; i < N; i += 2) {
        int16x8_t words = vcombine_s16(vqmovn_s32(quant[i]), vqmovn_s32(quant[i + 1]));
        vst1_s8((int8_t *)q + VF * i, vqmovn_s16(words));
        vi both = vi_add(quant[i], quant[i + 1]);
        first = i < N / 2 ? vi_add(first, both) : first;
        last = i < N / 2 ? last : vi_add(last, both);
    }
#elif defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)q, _mm512_cvtsepi32_epi8(quant[0]));
    _mm_storeu_si128((__m128i *)(q + 16), _mm512_cvtsepi32_epi8(quant[1]));
    vi first = quant[0], last = quant[1];
#else
    vi bytes = _mm256_packs_epi16(_mm256_packs_epi32(quant[0], quant[1]),
                                  _mm256_packs_epi32(quant[2], quant[3]));
    const vi order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vi_store(q, _mm256_permutevar8x32_epi32(bytes, order));
    vi first = vi_add(quant[0], quant[1]), last = vi_add(quant[2], quant[3]);
#endif
    int32_t sum = vi_sum_all(tr.halves ? first : vi_add(first, last));
    int32_t c[2] = {-tr.offset * sum, tr.halves ? -tr.offset * vi_sum_all(last) : 0};
    s[0] = d;
    if (tr.min)
        s[panel] = (tr.k ? -d : d) * (float)sum;
    else
        memcpy(s + panel, &c[0], sizeof c[0]);
    if (tr.halves && tr.min)
        s[2 * panel] = -d * (float)vi_sum_all(last);
    else if (tr.halves)
        memcpy(s + 2 * panel, &c[1], sizeof c[1]);
}

/* A token that is alone in its panel. */
static void quantise_one(vt_dtype type, const float *x, int64_t cols, uint8_t *panel)
{
    const linear_traits tr = linear_traits_of(type);
    for (int64_t k = 0; k < cols; k += LINEAR_BLOCK, panel += panel_block_bytes(1))
        quantise_block(tr, x + k, 1, panel, (float *)(panel + 32));
}

/* ---- a packed tile and one token ---- */

/* The number of tokens whose int32 sums are computed at the same time. They are independent of each
 * other. AVX-512 has enough registers for this: 84 cycles per tile, block and 16 tokens, and 92 one
 * by one. With the 16 registers of AVX2 one by one is faster: 195 cycles instead of 231. */
enum { TOGETHER = VF == 16 || VF == 4 ? 8 : UNSIGNED ? 4 : 1 };

/* acc[t] += a block's products for T tokens (a constant <= 8) of a panel of P; q, s: quants and
 * scales of the first of them. */
INLINE void add_block(linear_traits tr, const weight_block *w, const uint8_t *q, const float *s,
                      int P, int T, vf *acc)
{
    UNROLL
    for (int t = 0; t < T; t += TOGETHER) {
        const int n = T < TOGETHER ? T : TOGETHER;
        vi sum[TOGETHER];
        dot_begin(tr, s + P + t, n, sum);
        dot(tr, w, 0, tr.halves ? 4 : 8, q + 32 * t, n, sum);
        UNROLL
        for (int i = t; i < t + n; i++)
            acc[i] = vf_fma(vf_of_int(sum[i - t]), vf_mul(w->d, vf_set1(s[i])), acc[i]);
        if (!tr.halves)
            continue;
        dot_begin(tr, s + 2 * P + t, n, sum);
        dot(tr, w, 4, 4, q + 32 * t, n, sum);
        UNROLL
        for (int i = t; i < t + n; i++)
            acc[i] = vf_fma(vf_of_int(sum[i - t]), vf_mul(w->e, vf_set1(s[i])), acc[i]);
    }
}

/* low + the share of a block's minima; c: the token's corrections, P apart. */
INLINE vf add_minima(linear_traits tr, vf e, const vf *m, const float *c, int P, vf low)
{
    if (!tr.halves)
        return vf_fma(e, vf_set1(c[0]), low);
    return vf_fma(m[1], vf_set1(c[P]), vf_fma(m[0], vf_set1(c[0]), low));
}

/* One token times R tiles (a constant, 1 or STREAMS) that lie apart in memory: their bytes come as
 * several streams, all of them prefetched, scales too. */
INLINE void dot_packed(vt_dtype type, int R, const linear_layout *l, const uint8_t *const *tile,
                       const uint8_t *panel, float *const *out)
{
    const linear_traits tr = linear_traits_of(type);
    const int64_t step = linear_quant_bytes(tr) + linear_scale_bytes(tr) + (tr.k ? 8 : 0);
    const uint8_t *q = panel;
    vf acc[STREAMS][HALVES], low[STREAMS][HALVES];
    UNROLL
    for (int i = 0; i < R * HALVES; i++)
        acc[i / HALVES][i % HALVES] = low[i / HALVES][i % HALVES] = vf_zero();
    int64_t due = AHEAD, upto = AHEAD;
    for (int64_t b = 0; b < l->blocks; b++, q += panel_block_bytes(1)) {
        for (upto += step; due < upto; due += 64)
            UNROLL
        for (int r = 0; r < R; r++)
            PREFETCH_L2(tile[r] + due);
        const float *s = (const float *)(q + 32);
        UNROLL
        for (int r = 0; r < R; r++)
            UNROLL
        for (int h = 0; h < HALVES; h++) {
            weight_block w;
            load_packed(type, l, tile[r], b, h, &w);
            add_block(tr, &w, q, s, 1, 1, &acc[r][h]);
            if (tr.min)
                low[r][h] = add_minima(tr, w.e, w.m, s + 1, 1, low[r][h]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int h = 0; h < HALVES; h++)
        vf_store(out[r] + VF * h, tr.min ? vf_add(acc[r][h], low[r][h]) : acc[r][h]);
}

/* out[i][row] of one token, alone in its panel, for n <= STREAMS tiles. */
NOINLINE void dot_one(vt_dtype type, int n, const linear_layout *l, const uint8_t *const *tile,
                      const uint8_t *panel, float *const *out)
{
    switch (type) {
#define VT_QUANT(name, ...)                                            \
    case VT_##name:                                                    \
        if (n == STREAMS)                                              \
            dot_packed(VT_##name, STREAMS, l, tile, panel, out);       \
        else                                                           \
            for (int i = 0; i < n; i++)                                \
                dot_packed(VT_##name, 1, l, tile + i, panel, out + i); \
        break;
#include "base/dtypes.h"
    default:
        assert(!"a quantised type");
    }
}

/* ---- unpacked blocks of tiles and the tokens of a panel ---- */

typedef float tile_sums[PANEL][LINEAR_TILE]; /* [t][row] */

enum { TILES_AT_ONCE = VF == 16 ? 2 : 1 }; /* that a panel is multiplied by at the same time */

/* A run of blocks of up to TILES_AT_ONCE tiles and one panel. */
typedef struct block_run {
    int64_t blocks;
    const uint8_t *tile, *panel; /* of the first block; tile: whole if it is packed */
    const linear_layout *layout; /* of tiles that are packed */
    int64_t first;               /* block of theirs */
    int tiles;
    int64_t apart;        /* bytes from a tile's blocks to those of the next */
    int n;                /* tokens, 1 .. 16 */
    bool resume;          /* add to the present sums */
    const uint8_t *ahead; /* packed tiles that are needed next, or NULL */
    int64_t ahead_bytes;  /* a block's share of each of them */
    int64_t ahead_apart;  /* bytes from one of them to the next */
} block_run;

NOINLINE void unpack_blocks(vt_dtype type, bool is_signed, const linear_layout *l,
                            const uint8_t *tile, int64_t first, int64_t n, uint8_t *dst)
{
    switch (type) {
#define VT_QUANT(name, ...)                                   \
    case VT_##name:                                           \
        if (is_signed)                                        \
            unpack(VT_##name, true, l, tile, first, n, dst);  \
        else                                                  \
            unpack(VT_##name, false, l, tile, first, n, dst); \
        break;
#include "base/dtypes.h"
    default:
        assert(!"a quantised type");
    }
}

/* Prefetches block b's share of the weights that are needed next, so that memory stays busy. They
 * go into L2, because a panel and the unpacked blocks fill L1. */
INLINE void prefetch_ahead(const block_run *c, int tiles, int64_t b)
{
    for (int r = 0; c->ahead && r < tiles; r++)
        for (int64_t i = 0; i < c->ahead_bytes; i += 64)
            PREFETCH_L2(c->ahead + r * c->ahead_apart + b * c->ahead_bytes + i);
}

/* Block b of a run, rows VF h .. of its tile. */
INLINE void load_weights(weight_form f, const block_run *c, int64_t b, int h, weight_block *w)
{
    if (f.packed)
        load_packed(f.type, c->layout, c->tile, c->first + b, h, w);
    else
        load_unpacked(c->tile + b * unpacked_bytes(f.tr), h, w);
}

/* sum[t][row] for T tokens (a constant <= 8) from t0 on and one tile. */
INLINE void dot_tile(weight_form f, const block_run *c, int t0, int T, tile_sums *sum)
{
    for (int h = 0; h < HALVES; h++) {
        const uint8_t *q = c->panel;
        vf acc[8];
        UNROLL
        for (int t = 0; t < T; t++)
            acc[t] = c->resume ? vf_load((*sum)[t0 + t] + VF * h) : vf_zero();
        for (int64_t b = 0; b < c->blocks; b++, q += panel_block_bytes(PANEL)) {
            weight_block w;
            load_weights(f, c, b, h, &w);
            if (t0 == 0 && h == 0)
                prefetch_ahead(c, 1, b);
            add_block(f.tr, &w, q + 32 * t0, (const float *)(q + 32 * PANEL) + t0, PANEL, T, acc);
        }
        UNROLL
        for (int t = 0; t < T; t++)
            vf_store((*sum)[t0 + t] + VF * h, acc[t]);
    }
}

#if defined(VNNI)
/* Group g of a block's quants. bits: how they are packed; 8: a byte each, as unpacked ones are. */
INLINE vi load_group(int bits, const uint8_t *w, int g)
{
    if (bits == 8)
        return vi_load(w + 64 * g);
    const vi both = vi_load(w + 64 * (g % 4));
    return vi_and(g < 4 ? both : VI_SRLI16(both, 4), vi_set8(15));
}

/* sum[r][t] = the products of groups g0 .. g0 + n - 1 (constants) of a block for T tokens and two
 * vectors of rows. w: where the quants of each begin; c: the tokens' corrections. A group of a
 * token is loaded once for both vectors: with one every product has a load of its own, and loads
 * take as long as products do. */
INLINE void sum_groups(weight_form f, const uint8_t *const *w, int g0, int n, const uint8_t *q,
                       const float *c, int T, vi (*sum)[8])
{
    const int bits = f.packed ? f.tr.bits : 8;
    dot_begin(f.tr, c, T, sum[0]);
    dot_begin(f.tr, c, T, sum[1]);
    UNROLL
    for (int g = g0; g < g0 + n; g++) {
        const vi first = load_group(bits, w[0], g), second = load_group(bits, w[1], g);
        UNROLL
        for (int t = 0; t < T; t++) {
            vi x = vi_set(load_i32(q + 32 * t + 4 * g));
            __asm__("" : "+v"(x)); /* a register: as an operand in memory it is loaded twice */
            sum[0][t] = vi_dot(sum[0][t], first, x);
            sum[1][t] = vi_dot(sum[1][t], second, x);
        }
    }
}

/* acc[t] += sum[t] times the rows' scales d and the tokens' scales s. */
INLINE void add_scaled(vf d, const float *s, int T, const vi *sum, vf *acc)
{
    UNROLL
    for (int t = 0; t < T; t++)
        acc[t] = vf_fma(vf_of_int(sum[t]), vf_mul(d, vf_set1(s[t])), acc[t]);
}

/* The sums of T tokens (a constant <= 8) from t0 on and two vectors of rows: of two tiles, or the
 * halves of one. */
INLINE void dot_pair(weight_form f, const block_run *c, int t0, int T, tile_sums *out)
{
    enum { SPLIT = VF == 8 };
    const int64_t step = f.packed ? linear_quant_bytes(f.tr) : unpacked_bytes(f.tr);
    const uint8_t *q = c->panel, *tile[2] = {c->tile, c->tile + (SPLIT ? 0 : c->apart)}, *w[2];
    float *to[2];
    vf acc[2][8];
    vi sum[2][8];
    for (int r = 0; r < 2; r++) {
        w[r] = tile[r] + (f.packed ? c->first * step : 0) + 4 * VF * SPLIT * r;
        to[r] = out[SPLIT ? 0 : r][t0] + VF * SPLIT * r;
    }
    UNROLL
    for (int i = 0; i < 2 * T; i++)
        acc[i / T][i % T] = c->resume ? vf_load(to[i / T] + LINEAR_TILE * (i % T)) : vf_zero();
    for (int64_t b = 0; b < c->blocks; b++, q += panel_block_bytes(PANEL)) {
        const float *s = (const float *)(q + 32 * PANEL) + t0;
        if (t0 == 0)
            prefetch_ahead(c, c->tiles, b);
        sum_groups(f, w, 0, f.tr.halves ? 4 : 8, q + 32 * t0, s + PANEL, T, sum);
        UNROLL
        for (int r = 0; r < 2; r++) {
            weight_block scales;
            if (f.packed)
                load_scales(f.type, c->layout, tile[r], c->first + b, SPLIT * r, &scales);
            else
                scales.d = vf_load(w[r] + 512);
            add_scaled(scales.d, s, T, sum[r], acc[r]);
        }
        if (f.tr.halves) { /* only unpacked ones */
            sum_groups(f, w, 4, 4, q + 32 * t0, s + 2 * PANEL, T, sum);
            UNROLL
            for (int r = 0; r < 2; r++)
                add_scaled(vf_load(w[r] + 576), s, T, sum[r], acc[r]);
        }
        w[0] += step;
        w[1] += step;
    }
    UNROLL
    for (int i = 0; i < 2 * T; i++)
        vf_store(to[i / T] + LINEAR_TILE * (i % T), acc[i / T][i % T]);
}
#endif

INLINE void dot_tokens(weight_form f, const block_run *c, int t0, int T, tile_sums *sum)
{
#if defined(VNNI)
    if (VF == 8 || c->tiles == 2) {
        dot_pair(f, c, t0, T, sum);
        return;
    }
#endif
    dot_tile(f, c, t0, T, sum);
}

/* The tokens of a panel, in the largest sets that registers hold. */
INLINE void dot_sets(weight_form f, const block_run *c, tile_sums *sum)
{
    int t = 0;
    for (; VF != 8 && t + 8 <= c->n; t += 8)
        dot_tokens(f, c, t, 8, sum);
    for (; t + 4 <= c->n; t += 4)
        dot_tokens(f, c, t, 4, sum);
    if (t + 2 <= c->n) {
        dot_tokens(f, c, t, 2, sum);
        t += 2;
    }
    if (t < c->n)
        dot_tokens(f, c, t, 1, sum);
}

/* sum[tile][t][row] of the products. Once they are unpacked, types differ only by the arithmetic
 * after the int32 sum and, for AVX2, by the number of products that fit in int16: a type with fewer
 * bits may be computed as one with more of them. */
NOINLINE void dot_panel(vt_dtype type, const block_run *c, tile_sums *sum)
{
    const linear_traits t = linear_traits_of(type);
    const bool any = UNSIGNED; /* vpdpbusd does not ask how many bits there are */
    assert(t.bits == 8 || (t.bits > 0 && t.bits <= (t.halves ? 6 : 5)));
    if (t.halves && t.min)
        dot_sets(UNPACKED(.bits = 2, .halves = true, .min = true), c, sum);
    else if (t.halves)
        dot_sets(UNPACKED(.bits = 6, .halves = true), c, sum);
    else if (t.min && (any || t.bits <= 4))
        dot_sets(UNPACKED(.bits = 4, .min = true), c, sum);
    else if (t.min)
        dot_sets(UNPACKED(.bits = 5, .min = true), c, sum);
    else if (any || t.bits == 8)
        dot_sets(UNPACKED(.bits = 8), c, sum);
    else if (t.bits <= 4)
        dot_sets(UNPACKED(.bits = 4), c, sum);
    else
        dot_sets(UNPACKED(.bits = 5), c, sum);
}

/* The minima of block b of a run, rows VF h .. of its tile. */
INLINE void load_minima(weight_form f, const block_run *c, int64_t b, int h, weight_block *w)
{
    const uint8_t *at = c->tile + b * unpacked_bytes(f.tr) + 576 + 4 * VF * h;
    if (f.packed) {
        load_scales(f.type, c->layout, c->tile, c->first + b, h, w);
        return;
    }
    w->e = vf_load(at);
    for (int i = 0; i < 2 && f.tr.halves; i++)
        w->m[i] = vf_load(at + 64 + 64 * i);
}

/* low[t][row] += the share of the minima, for T tokens (a constant <= 8) from t0 on. */
INLINE void min_tokens(weight_form f, const block_run *c, int t0, int T, float (*low)[LINEAR_TILE])
{
    for (int h = 0; h < HALVES; h++) {
        const float *s = (const float *)(c->panel + 32 * PANEL) + PANEL + t0;
        vf acc[8];
        UNROLL
        for (int t = 0; t < T; t++)
            acc[t] = c->resume ? vf_load(low[t0 + t] + VF * h) : vf_zero();
        for (int64_t b = 0; b < c->blocks; b++, s += panel_block_bytes(PANEL) / 4) {
            weight_block w;
            load_minima(f, c, b, h, &w);
            UNROLL
            for (int t = 0; t < T; t++)
                acc[t] = add_minima(f.tr, w.e, w.m, s + t, PANEL, acc[t]);
        }
        UNROLL
        for (int t = 0; t < T; t++)
            vf_store(low[t0 + t] + VF * h, acc[t]);
    }
}

INLINE void min_sets(weight_form f, const block_run *c, float (*low)[LINEAR_TILE])
{
    if (c->n <= 2)
        min_tokens(f, c, 0, 2, low);
    else
        for (int t = 0; t < c->n; t += 8)
            min_tokens(f, c, t, 8, low);
}

/* low[t][row] for at least the panel's tokens. */
NOINLINE void min_panel(bool halves, const block_run *c, float (*low)[LINEAR_TILE])
{
    if (halves)
        min_sets(UNPACKED(.min = true, .halves = true), c, low);
    else
        min_sets(UNPACKED(.min = true), c, low);
}

/* ---- packed tiles and the tokens of a panel ---- */

/* Returns whether a call of so many tokens multiplies weights as they are packed: unpacking them
 * into memory takes as long as the products of 3 tokens. With vpdpbusd, quants that are bytes or
 * halves of bytes are unpacked in the products' own loads. */
INLINE bool dots_packed(linear_traits tr, int64_t tokens)
{
#if defined(VNNI)
    return tokens <= PANEL && (tr.bits == 4 || tr.bits == 8) && !tr.halves;
#else
    return (void)tr, tokens <= PACKED_TOKENS;
#endif
}

#define PACKED_PANEL(TYPE)                                \
    case VT_##TYPE:                                       \
        if (!dots_packed(linear_traits_of(VT_##TYPE), 1)) \
            break;                                        \
        if (minima && linear_traits_of(VT_##TYPE).min)    \
            min_sets(PACKED(VT_##TYPE), c, low);          \
        else if (!minima)                                 \
            dot_sets(PACKED(VT_##TYPE), c, sum);          \
        break;
/* Does for packed tiles what min_panel (minima) or dot_panel does for unpacked ones. */
NOINLINE void packed_panel(vt_dtype type, const block_run *c, bool minima, tile_sums *sum,
                           float (*low)[LINEAR_TILE])
{
    switch (type) {
#define VT_QUANT(name, ...) PACKED_PANEL(name)
#include "base/dtypes.h"
    default:
        assert(!"a quantised type");
    }
}

#endif
