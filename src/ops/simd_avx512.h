/* Sixteen floats at a time, AVX-512 F, BW, DQ, VL. The meaning of every function is in
 * simd_portable.h. */
#ifndef VT_OPS_SIMD_AVX512_H
#define VT_OPS_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "base/tensor.h"

#define SIMD_ROW(name) name##_avx512
#define SIMD_NAME "avx512"
#define SIMD_ISA VT_ISA_AVX512

/* 6 x 4 accumulators, 4 operands of B, one broadcast of A: 29 of 32 registers. */
enum { VF = 16, TILE_ROWS = 6, TILE_VECS = 4 };

typedef __m512 vf;

static inline __mmask16 lanes_below(int n) { return (__mmask16)((1u << n) - 1); }

static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_load(const void *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf vf_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
static inline void vf_store_n(float *p, vf v, int n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), v);
}

static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline float vf_sum(vf v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_hmax(vf v)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline vf vf_keep_range(vf v, int first, int begin, int end, float other)
{
    __m512i lane = _mm512_add_epi32(
        _mm512_set1_epi32(first),
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __mmask16 in = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
                   _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
    return _mm512_mask_blend_ps(in, _mm512_set1_ps(other), v);
}

static inline unsigned vf_mask_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
static inline unsigned vf_mask_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline vf vf_keep_ge(vf v, vf x, vf y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_GE_OQ), v);
}

typedef struct vd {
    __m512d lo, hi;
} vd;
static inline vd vd_zero(void) { return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
static inline vd vd_add(vd a, vf v)
{
    a.lo = _mm512_add_pd(a.lo, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    a.hi = _mm512_add_pd(a.hi, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
    return a;
}
static inline double vd_sum(vd a) { return _mm512_reduce_add_pd(_mm512_add_pd(a.lo, a.hi)); }

static inline vf vf_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline vf vf_load_f16_n(const uint16_t *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes_below(n), p));
}
static inline void vf_store_f16_n(uint16_t *p, vf v, int n)
{
    _mm256_mask_storeu_epi16(p, lanes_below(n),
                             _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf bf16_to_f32(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return bf16_to_f32(_mm256_loadu_si256((const __m256i *)p));
}

#define SIMD_MASKED
#include "ops/simd_poly.h"

static inline vf vf_exp2(vf x)
{
    vf bounded = vf_min(vf_set1(EXP2_MAX), vf_max(vf_set1(EXP2_MIN - 1), x));
    vf n = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf f = vf_sub(bounded, n);
    vf p = exp2_poly(f);
    __mmask16 in = _mm512_cmp_ps_mask(x, vf_set1(EXP2_MIN), _CMP_NLT_UQ); /* a NaN stays one */
    return _mm512_maskz_scalef_ps(in, p, n);
}
static inline vf vf_load_bf16_n(const uint16_t *p, int n)
{
    return bf16_to_f32(_mm256_maskz_loadu_epi16(lanes_below(n), p));
}

/* An e4m3 is an f16 with a different exponent bias: its bits are moved to their places and the
 * result multiplied by 2^8. The byte's sign is extended, which puts it into bit 15 of the f16. */
static inline vf vf_load_e4m3_n(const uint8_t *p, int n)
{
    __m128i b = n == VF ? _mm_loadu_si128((const __m128i *)p)
                        : _mm_maskz_loadu_epi8(lanes_below(n), p);
    __m128i low = _mm_set1_epi8(0x7f);
    __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(b, low), low);
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);
    h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbfff));
    h = _mm256_mask_set1_epi16(h, nan, -1);
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256));
}

static inline void vf_transpose(vf r[VF])
{
    vf t[VF], u[VF];
    for (int i = 0; i < VF; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VF; i += 4) { /* u[i + k], lane block b: rows i .. i+3 of column 4 b + k */
        u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int k = 0; k < 4; k++) { /* 4 x 4 transpose of 128-bit blocks */
        vf a = _mm512_shuffle_f32x4(u[k], u[k + 4], 0x88),
           b = _mm512_shuffle_f32x4(u[k], u[k + 4], 0xdd);
        vf c = _mm512_shuffle_f32x4(u[k + 8], u[k + 12], 0x88),
           d = _mm512_shuffle_f32x4(u[k + 8], u[k + 12], 0xdd);
        r[k] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[k + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[k + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[k + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

enum { MATCH_VECTOR_BYTES = 64, MATCH_BLOCK = 64 };
static inline int match_block(const int32_t *a, const int32_t *b)
{
    __mmask16 differ[4];
    for (int i = 0; i < 4; i++)
        differ[i] = _mm512_cmpneq_epi32_mask(_mm512_loadu_si512(a + 16 * i),
                                             _mm512_loadu_si512(b + 16 * i));
    uint64_t all = (uint64_t)differ[0] | (uint64_t)differ[1] << 16 | (uint64_t)differ[2] << 32 |
                   (uint64_t)differ[3] << 48;
    return all ? __builtin_ctzll(all) : MATCH_BLOCK;
}

#endif
