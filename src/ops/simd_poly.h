/* The functions that are the same for every vector, written over the others: each simd_*.h includes
 * this file when it has those.
 *
 * 2^f on [-1/2, 1/2] as a polynomial with constant term 1, so that 2^0 is exactly 1. The fit
 * minimises the largest relative error, 2.0e-9 before rounding (tools/fixtures/exp2_poly.py).
 * Degree 5 would save one multiply-add and give 9.2e-8. Shared by all instruction sets. */
#ifndef VT_OPS_SIMD_POLY_H
#define VT_OPS_SIMD_POLY_H

#define EXP2_C1 0.693147182f
#define EXP2_C2 0.240226477f
#define EXP2_C3 0.0555033237f
#define EXP2_C4 0.00961843692f
#define EXP2_C5 0.0013398875f
#define EXP2_C6 0.00015353362f
#define EXP2_MIN (-126.0f) /* below: 0 */
#define EXP2_MAX 127.0f
#define LOG2E 1.44269504f

/* The members of a kernel's row whose functions are gelu_run and gelu_describe:
 * SIMD_IMPL(gelu, gelu_supports). */
#define SIMD_IMPL(functions, takes)                                                 \
    .name = SIMD_NAME, .device = VT_DEVICE_CPU, .isa = SIMD_ISA, .supports = takes, \
    .run = functions##_run, .describe = functions##_describe

static inline vf exp2_poly(vf f)
{
    vf p = vf_set1(EXP2_C6);
    p = vf_fma(p, f, vf_set1(EXP2_C5));
    p = vf_fma(p, f, vf_set1(EXP2_C4));
    p = vf_fma(p, f, vf_set1(EXP2_C3));
    p = vf_fma(p, f, vf_set1(EXP2_C2));
    p = vf_fma(p, f, vf_set1(EXP2_C1));
    return vf_fma(p, f, vf_set1(1));
}

#ifndef SIMD_MASKED /* with masks the first n elements are loaded at once */
static inline vf vf_load_f16_n(const uint16_t *p, int n)
{
    uint16_t h[VF] = {0};
    memcpy(h, p, (size_t)n * sizeof *p);
    return vf_load_f16(h);
}
static inline vf vf_load_bf16_n(const uint16_t *p, int n)
{
    uint16_t h[VF] = {0};
    memcpy(h, p, (size_t)n * sizeof *p);
    return vf_load_bf16(h);
}
#endif
static inline void vf_store_bf16_n(uint16_t *p, vf v, int n)
{
    float x[VF];
    vf_store(x, v);
    for (int i = 0; i < n; i++)
        p[i] = vt_f32_to_bf16(x[i]);
}
static inline void vf_store_e4m3_n(uint8_t *p, vf v, int n)
{
    float x[VF];
    vf_store(x, v);
    for (int i = 0; i < n; i++)
        p[i] = vt_f32_to_fp8_e4m3(x[i]);
}

#endif
