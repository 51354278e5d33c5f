/* Eight floats at a time, AVX2 + FMA + F16C. The meaning of every function is in
 * simd_portable.h. */
#ifndef VT_OPS_SIMD_AVX2_H
#define VT_OPS_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "base/tensor.h"

#define SIMD_ROW(name) name##_avx2
#define SIMD_NAME "avx2"
#define SIMD_ISA VT_ISA_AVX2

/* 6 x 2 accumulators, 2 operands of B, one broadcast of A: 15 of 16 registers. */
enum { VF = 8, TILE_ROWS = 6, TILE_VECS = 2 };

typedef __m256 vf;

/* Ones in the first n lanes. */
static inline __m256i lanes_below(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_load(const void *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, lanes_below(n)); }
/* A masked store is slow on AMD's CPUs, even if it stores all lanes. */
static inline void vf_store_n(float *p, vf v, int n)
{
    if (n == VF)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, lanes_below(n), v);
}

static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline float vf_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_hmax(vf v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline vf vf_keep_range(vf v, int first, int begin, int end, float other)
{
    __m256i lane = _mm256_add_epi32(_mm256_set1_epi32(first),
                                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                     _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
    return _mm256_blendv_ps(_mm256_set1_ps(other), v, _mm256_castsi256_ps(in));
}

static inline unsigned vf_mask_ge(vf a, vf b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
static inline unsigned vf_mask_nan(vf a)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static inline vf vf_keep_ge(vf v, vf x, vf y)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(x, y, _CMP_GE_OQ));
}

typedef struct vd {
    __m256d lo, hi;
} vd;
static inline vd vd_zero(void) { return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()}; }
static inline vd vd_add(vd a, vf v)
{
    a.lo = _mm256_add_pd(a.lo, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    a.hi = _mm256_add_pd(a.hi, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    return a;
}
static inline double vd_sum(vd a)
{
    double lane[4];
    _mm256_storeu_pd(lane, _mm256_add_pd(a.lo, a.hi));
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

static inline vf vf_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline void vf_store_f16_n(uint16_t *p, vf v, int n)
{
    __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (n == VF)
        _mm_storeu_si128((__m128i *)p, h);
    else
        memcpy(p, &h, (size_t)n * sizeof *p);
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

#include "ops/simd_poly.h"

static inline vf vf_exp2(vf x)
{
    vf bounded = vf_min(vf_set1(EXP2_MAX), vf_max(vf_set1(EXP2_MIN - 1), x));
    vf n = _mm256_round_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf f = vf_sub(bounded, n);
    vf p = exp2_poly(f);
    __m256i bits = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    vf in = _mm256_cmp_ps(x, vf_set1(EXP2_MIN), _CMP_NLT_UQ); /* a NaN stays one */
    return _mm256_and_ps(in, vf_mul(p, _mm256_castsi256_ps(bits)));
}

/* An e4m3 is an f16 with a different exponent bias: its bits are moved to their places and the
 * result multiplied by 2^8. The byte's sign is extended, which puts it into bit 15 of the f16. */
static inline vf vf_load_e4m3_n(const uint8_t *p, int n)
{
    uint64_t loaded = 0;
    memcpy(&loaded, p, (size_t)n);
    __m128i b = _mm_cvtsi64_si128((long long)loaded), low = _mm_set1_epi8(0x7f);
    __m128i nan = _mm_cvtepi8_epi16(_mm_cmpeq_epi8(_mm_and_si128(b, low), low));
    __m128i h = _mm_slli_epi16(_mm_cvtepi8_epi16(b), 7);
    h = _mm_or_si128(_mm_and_si128(h, _mm_set1_epi16((short)0xbfff)), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256));
}

static inline void vf_transpose(vf r[VF])
{
    vf t[VF], u[VF];
    for (int i = 0; i < VF; i += 2) { /* pairs of rows: 2 x 2 blocks */
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VF; i += 4) { /* 4 x 4 blocks */
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < VF / 2; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

enum { MATCH_VECTOR_BYTES = 32, MATCH_BLOCK = 32 };
static inline int match_block(const int32_t *a, const int32_t *b)
{
    __m256i e[4];
    for (int i = 0; i < 4; i++)
        e[i] = _mm256_cmpeq_epi32(_mm256_loadu_si256((const __m256i *)(a + 8 * i)),
                                  _mm256_loadu_si256((const __m256i *)(b + 8 * i)));
    __m256i all = _mm256_and_si256(_mm256_and_si256(e[0], e[1]), _mm256_and_si256(e[2], e[3]));
    if (_mm256_movemask_epi8(all) == -1)
        return MATCH_BLOCK;
    for (int i = 0; i < 4; i++) {
        unsigned differ = ~(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(e[i])) & 0xff;
        if (differ)
            return 8 * i + __builtin_ctz(differ);
    }
    return MATCH_BLOCK;
}

#endif
