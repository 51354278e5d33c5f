/* Four floats at a time, NEON of any arm64. The meaning of every function is in simd_portable.h. */
#ifndef VT_OPS_SIMD_NEON_H
#define VT_OPS_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "base/tensor.h"

#define SIMD_ROW(name) name##_neon
#define SIMD_NAME "neon"
#define SIMD_ISA VT_ISA_NEON

/* 6 x 4 accumulators, 4 operands of B, one broadcast of A: 29 of 32 registers. */
enum { VF = 4, TILE_ROWS = 6, TILE_VECS = 4 };

typedef float32x4_t vf;

static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_zero(void) { return vdupq_n_f32(0); }
static inline vf vf_load(const void *p) { return vld1q_f32((const float *)p); }
static inline void vf_store(float *p, vf v) { vst1q_f32(p, v); }
static inline vf vf_load_n(const float *p, int n)
{
    float some[VF] = {0};
    memcpy(some, p, (size_t)n * sizeof *p);
    return vld1q_f32(some);
}
static inline void vf_store_n(float *p, vf v, int n)
{
    if (n == VF)
        vst1q_f32(p, v);
    else
        memcpy(p, &v, (size_t)n * sizeof *p);
}

static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline float vf_sum(vf v)
{
    float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}
static inline float vf_hmax(vf v)
{
    float lane[VF], m;
    vst1q_f32(lane, v);
    m = lane[0];
    for (int i = 1; i < VF; i++)
        m = m > lane[i] ? m : lane[i];
    return m;
}
static inline vf vf_keep_range(vf v, int first, int begin, int end, float other)
{
    static const int32_t ramp[VF] = {0, 1, 2, 3};
    int32x4_t lane = vaddq_s32(vdupq_n_s32(first), vld1q_s32(ramp));
    uint32x4_t in = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(begin)),
                              vcltq_s32(lane, vdupq_n_s32(end)));
    return vbslq_f32(in, v, vdupq_n_f32(other));
}

/* One bit a lane of a mask of all ones or zeros. */
static inline unsigned mask_bits(uint32x4_t m)
{
    static const uint32_t bit[VF] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}
static inline unsigned vf_mask_ge(vf a, vf b) { return mask_bits(vcgeq_f32(a, b)); }
static inline unsigned vf_mask_nan(vf a) { return mask_bits(vmvnq_u32(vceqq_f32(a, a))); }
static inline vf vf_keep_ge(vf v, vf x, vf y)
{
    return vbslq_f32(vcgeq_f32(x, y), v, vdupq_n_f32(0));
}

typedef struct vd {
    float64x2_t lo, hi;
} vd;
static inline vd vd_zero(void) { return (vd){vdupq_n_f64(0), vdupq_n_f64(0)}; }
static inline vd vd_add(vd a, vf v)
{
    a.lo = vaddq_f64(a.lo, vcvt_f64_f32(vget_low_f32(v)));
    a.hi = vaddq_f64(a.hi, vcvt_high_f64_f32(v));
    return a;
}
static inline double vd_sum(vd a) { return vaddvq_f64(a.lo) + vaddvq_f64(a.hi); }

static inline vf vf_load_f16(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p)));
}
static inline void vf_store_f16_n(uint16_t *p, vf v, int n)
{
    uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(v));
    memcpy(p, &h, (size_t)n * sizeof *p);
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

#include "ops/simd_poly.h"

static inline vf vf_exp2(vf x)
{
    vf bounded = vf_min(vf_set1(EXP2_MAX), vf_max(vf_set1(EXP2_MIN - 1), x));
    vf n = vrndnq_f32(bounded);
    vf f = vf_sub(bounded, n);
    vf p = exp2_poly(f);
    int32x4_t bits = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    uint32x4_t below = vcltq_f32(x, vf_set1(EXP2_MIN)); /* false for a NaN, which stays one */
    return vbslq_f32(below, vf_zero(), vf_mul(p, vreinterpretq_f32_s32(bits)));
}

/* As in simd_avx2.h: the bits of an e4m3 are moved to their places in an f16. */
static inline vf vf_load_e4m3_n(const uint8_t *p, int n)
{
    uint64_t bytes = 0;
    memcpy(&bytes, p, (size_t)n);
    uint16x4_t b = vget_low_u16(vmovl_u8(vcreate_u8(bytes))), low = vdup_n_u16(0x7f);
    uint16x4_t size = vand_u16(b, low), sign = vshl_n_u16(vbic_u16(b, low), 8);
    uint16x4_t h = vorr_u16(sign, vshl_n_u16(size, 7));
    h = vorr_u16(h, vceq_u16(size, low)); /* NaN */
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(h)), 256);
}

static inline void vf_transpose(vf r[VF])
{
    float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

enum { MATCH_VECTOR_BYTES = 16, MATCH_BLOCK = 16 };
static inline int match_block(const int32_t *a, const int32_t *b)
{
    uint32x4_t e[4];
    for (int i = 0; i < 4; i++)
        e[i] = vceqq_s32(vld1q_s32(a + 4 * i), vld1q_s32(b + 4 * i));
    if (vminvq_u32(vandq_u32(vandq_u32(e[0], e[1]), vandq_u32(e[2], e[3]))) != 0)
        return MATCH_BLOCK;
    int i = 0;
    while (a[i] == b[i])
        i++;
    return i;
}

#endif
