/* The vector kernels of linear need more than ops/simd_avx2.h and its like have: vectors of
 * VF int32 lanes, and a few more operations on floats. A tile of weights has 16 rows, so a vector
 * is half of it or all of it. linear_dot.h and linear_simd.h include this file, which is compiled
 * once per instruction set. */
#ifndef VT_OPS_LINEAR_VEC_H
#define VT_OPS_LINEAR_VEC_H

#include <stdint.h>
#include <string.h>

#include "ops/linear/linear_pack.h"
#if defined(__aarch64__)
#include "ops/simd_neon.h"
#elif defined(__AVX512F__)
#include "ops/simd_avx512.h"
#else
#include "ops/simd_avx2.h"
#endif

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL16 _Pragma("GCC unroll 16")

/* Into the L1, or the L2 cache. */
#define PREFETCH(p) __builtin_prefetch(p, 0, 3)
#define PREFETCH_L2(p) __builtin_prefetch(p, 0, 2)

#if defined(__aarch64__)
typedef int32x4_t vi;
INLINE vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vf vf_round(vf a) { return vrndnq_f32(a); }
INLINE vf vf_of_int(vi a) { return vcvtq_f32_s32(a); }
INLINE vf vf_bits(vi a) { return vreinterpretq_f32_s32(a); }
INLINE vi vi_of_float(vf a) { return vcvtnq_s32_f32(a); }
INLINE vi vi_bits(vf a) { return vreinterpretq_s32_f32(a); }
INLINE vi vi_load(const void *p) { return vld1q_s32((const int32_t *)p); }
INLINE void vi_store(void *p, vi a) { vst1q_s32((int32_t *)p, a); }
INLINE vi vi_set(int32_t x) { return vdupq_n_s32(x); }
INLINE vi vi_set8(int x) { return vreinterpretq_s32_s8(vdupq_n_s8((int8_t)x)); }
INLINE vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
INLINE vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
INLINE vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
INLINE vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); }
INLINE vi vi_of_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
INLINE vi vi_of_i8(const uint8_t *p)
{
    return (vi){(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]};
}
INLINE int32_t vi_max_all(vi a) { return vmaxvq_s32(a); }
INLINE int32_t vi_sum_all(vi a) { return vaddvq_s32(a); }
#define VI_SLLI16(a, n) vreinterpretq_s32_u16(vshlq_n_u16(vreinterpretq_u16_s32(a), n))
#define VI_SRLI16(a, n) vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(a), n))
#define VI_SLLI32(a, n) vshlq_n_s32(a, n)
#elif defined(__AVX512F__)
typedef __m512i vi;
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, 0x08); }
INLINE vf vf_of_int(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vf vf_bits(vi a) { return _mm512_castsi512_ps(a); }
INLINE vi vi_of_float(vf a) { return _mm512_cvtps_epi32(a); }
INLINE vi vi_bits(vf a) { return _mm512_castps_si512(a); }
INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void vi_store(void *p, vi a) { _mm512_storeu_si512(p, a); }
INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_set8(int x) { return _mm512_set1_epi8((char)x); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
INLINE vi vi_of_u8(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
INLINE vi vi_of_i8(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
INLINE int32_t vi_max_all(vi a) { return _mm512_reduce_max_epi32(a); }
INLINE int32_t vi_sum_all(vi a) { return _mm512_reduce_add_epi32(a); }
#define VI_SLLI16(a, n) _mm512_slli_epi16(a, n)
#define VI_SRLI16(a, n) _mm512_srli_epi16(a, n)
#define VI_SLLI32(a, n) _mm512_slli_epi32(a, n)
#else
typedef __m256i vi;
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vf vf_round(vf a) { return _mm256_round_ps(a, 0x08); }
INLINE vf vf_of_int(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vf vf_bits(vi a) { return _mm256_castsi256_ps(a); }
INLINE vi vi_of_float(vf a) { return _mm256_cvtps_epi32(a); }
INLINE vi vi_bits(vf a) { return _mm256_castps_si256(a); }
INLINE vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE void vi_store(void *p, vi a) { _mm256_storeu_si256(p, a); }
INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_set8(int x) { return _mm256_set1_epi8((char)x); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
INLINE vi vi_of_u8(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
INLINE vi vi_of_i8(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
INLINE int32_t vi_max_all(vi a)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
INLINE int32_t vi_sum_all(vi a)
{
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
#define VI_SLLI16(a, n) _mm256_slli_epi16(a, n)
#define VI_SRLI16(a, n) _mm256_srli_epi16(a, n)
#define VI_SLLI32(a, n) _mm256_slli_epi32(a, n)
#endif

enum { HALVES = LINEAR_TILE / VF };

/* Each lane of sum plus four products of unsigned bytes of q and signed ones of x. */
#if defined(__AVX512F__)
#define VNNI
INLINE vi vi_dot(vi sum, vi q, vi x) { return _mm512_dpbusd_epi32(sum, q, x); }
#elif defined(__AVXVNNI__)
#define VNNI
INLINE vi vi_dot(vi sum, vi q, vi x) { return _mm256_dpbusd_avx_epi32(sum, q, x); }
#endif

INLINE float load_f32(const void *p)
{
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

INLINE int32_t load_i32(const void *p)
{
    int32_t i;
    memcpy(&i, p, sizeof i);
    return i;
}

/* e^x: x = n ln 2 + r, a polynomial of degree 7 in r (relative error 2e-7), 2^n by the exponent.
 * x is held in [-87, 88], where neither end is denormal or infinite; NaN passes. */
INLINE vf vf_exp(vf x)
{
    x = vf_min(vf_set1(88), vf_max(vf_set1(-87), x));
    vf n = vf_round(vf_mul(x, vf_set1(1.44269504f)));
    vf r = vf_fnma(n, vf_set1(0x1.62e4p-1f), x);
    r = vf_fnma(n, vf_set1(1.42860677e-6f), r);
    vf p = vf_set1(1.0f / 5040);
    p = vf_fma(p, r, vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1));
    p = vf_fma(p, r, vf_set1(1));
    return vf_bits(vi_add(vi_bits(p), VI_SLLI32(vi_of_float(n), 23)));
}

INLINE vf vf_load_some(const float *p, int64_t n)
{
    float some[VF] = {0};
    if (n >= VF)
        return vf_load(p);
    memcpy(some, p, (size_t)n * sizeof *p);
    return vf_load(some);
}

INLINE void vf_store_some(float *p, vf x, int64_t n)
{
    float some[VF];
    if (n >= VF) {
        vf_store(p, x);
        return;
    }
    vf_store(some, x);
    memcpy(p, some, (size_t)n * sizeof *p);
}

#endif
