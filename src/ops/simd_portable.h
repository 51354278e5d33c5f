/* Four floats at a time in plain C (compiler vector extensions): the portable form of the vector
 * type that CPU kernels are written over (linear has its own, linear_vec.h). A kernel is one
 * header, <op>_kernel.h, compiled once per instruction set; only the header included before it
 * differs: simd_portable.h, simd_avx2.h, simd_avx512.h or simd_neon.h.
 *
 *   vf            a vector of VF floats
 *   vf_fma(a,b,c) a * b + c; one rounding where the machine has FMA, two here: they differ between
 *                 instruction sets, never between runs
 *   vf_max(a,b)   a > b ? a : b, so a NaN in either yields b; vf_min likewise
 *   vf_sum, vf_hmax  over the lanes, in a fixed tree
 *   vf_load_n, vf_store_n  the first n lanes, 0 < n <= VF; others read as 0 and are not written
 *
 * A kernel ends with the row that it makes: SIMD_ROW(rope) is rope_avx2, SIMD_NAME "avx2", SIMD_ISA
 * VT_ISA_AVX2. cpu_rows.h lists these rows for a card. Where a kernel includes another one for its
 * functions, it defines SIMD_PART before, and gets no row of the other.
 *
 * TILE_ROWS x TILE_VECS accumulators are as many as the registers hold beside the operands. */
#ifndef VT_OPS_SIMD_PORTABLE_H
#define VT_OPS_SIMD_PORTABLE_H

#include <stdint.h>
#include <string.h>

#include "base/tensor.h"

#define SIMD_ROW(name) name##_portable
#define SIMD_NAME "portable"
#define SIMD_ISA VT_ISA_PORTABLE
#define SIMD_PORTABLE

enum { VF = 4, TILE_ROWS = 6, TILE_VECS = 2 };

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

static inline vf vf_set1(float x) { return (vf){x, x, x, x}; }
static inline vf vf_zero(void) { return vf_set1(0); }
static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
static inline vf vf_load_n(const float *p, int n)
{
    vf v = vf_zero();
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}
static inline void vf_store_n(float *p, vf v, int n) { memcpy(p, &v, (size_t)n * sizeof *p); }

static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
static inline vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
static inline vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }
static inline float vf_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
static inline float vf_hmax(vf v)
{
    float m = v[0];
    for (int i = 1; i < VF; i++)
        m = m > v[i] ? m : v[i];
    return m;
}

/* Lane i keeps its value where begin <= first + i < end, else becomes `other`. */
static inline vf vf_keep_range(vf v, int first, int begin, int end, float other)
{
    vi lane = {first, first + 1, first + 2, first + 3};
    return vf_select((lane >= begin) & (lane < end), v, vf_set1(other));
}

/* One bit a lane. */
static inline unsigned vf_mask_ge(vf a, vf b)
{
    vi m = a >= b;
    return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
}
static inline unsigned vf_mask_nan(vf a)
{
    vi m = a != a;
    return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
}
/* Lanes of v where x >= y, 0 elsewhere. */
static inline vf vf_keep_ge(vf v, vf x, vf y) { return vf_select(x >= y, v, vf_zero()); }

/* Exact sums of many floats: lanes in double. */
typedef struct vd {
    double lane[VF];
} vd;
static inline vd vd_zero(void) { return (vd){{0}}; }
static inline vd vd_add(vd a, vf v)
{
    for (int i = 0; i < VF; i++)
        a.lane[i] += (double)v[i];
    return a;
}
static inline double vd_sum(vd a) { return (a.lane[0] + a.lane[1]) + (a.lane[2] + a.lane[3]); }

static inline vf vf_load_f16(const uint16_t *p)
{
    return (vf){vt_f16_to_f32(p[0]), vt_f16_to_f32(p[1]), vt_f16_to_f32(p[2]), vt_f16_to_f32(p[3])};
}
static inline void vf_store_f16_n(uint16_t *p, vf v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = vt_f32_to_f16(v[i]);
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return (vf){vt_bf16_to_f32(p[0]), vt_bf16_to_f32(p[1]), vt_bf16_to_f32(p[2]),
                vt_bf16_to_f32(p[3])};
}

#include "ops/simd_poly.h"

/* 2^x, relative error below 1.5e-7 (tests/unit/test_op_simd.c); 0 below 2^-126, clamped above
 * 2^127, NaN for NaN. */
static inline vf vf_exp2(vf x)
{
    vf bounded = vf_min(vf_set1(EXP2_MAX), vf_max(vf_set1(EXP2_MIN - 1), x));
    vf shifted = bounded + vf_set1(0x1.8p23f); /* the rounded integer sits in the low bits */
    vf f = bounded - (shifted - vf_set1(0x1.8p23f));
    vf p = exp2_poly(f);
    vf scale = (vf)(((vi)shifted << 23) +
                    (127 << 23)); /* only the low 8 bits of n survive the shift */
    return vf_select(x < vf_set1(EXP2_MIN), vf_zero(), p * scale);
}

static inline vf vf_load_e4m3_n(const uint8_t *p, int n)
{
    vf v = {0};
    for (int i = 0; i < n; i++)
        v[i] = vt_fp8_e4m3_to_f32(p[i]);
    return v;
}

/* Transposes r: rows become columns. */
static inline void vf_transpose(vf r[VF])
{
    for (int i = 0; i < VF; i++)
        for (int j = i + 1; j < VF; j++) {
            float x = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = x;
        }
}

/* Compares MATCH_BLOCK words; the index of the first that differs, MATCH_BLOCK if none does. */
enum { MATCH_VECTOR_BYTES = 8, MATCH_BLOCK = 8 };
static inline int match_block(const int32_t *a, const int32_t *b)
{
    uint64_t x[MATCH_BLOCK / 2], y[MATCH_BLOCK / 2];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    if (((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0)
        return MATCH_BLOCK;
    int i = 0;
    while (a[i] == b[i])
        i++;
    return i;
}

#endif
