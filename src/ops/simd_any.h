/* Vector loads and stores by element type; comes after one of the simd_<isa>.h headers. n lanes, 0
 * < n <= VF. */
#ifndef VT_OPS_SIMD_ANY_H
#define VT_OPS_SIMD_ANY_H

static inline int lanes_left(int64_t done, int64_t n)
{
    return n - done < VF ? (int)(n - done) : VF;
}

static inline vf vf_load_any(const void *base, vt_dtype dtype, int64_t at, int n)
{
    if (dtype == VT_F32)
        return n == VF ? vf_load((const float *)base + at) : vf_load_n((const float *)base + at, n);
    if (dtype == VT_FP8_E4M3)
        return n == VF ? vf_load_e4m3_n((const uint8_t *)base + at, VF) /* a constant length */
                       : vf_load_e4m3_n((const uint8_t *)base + at, n);
    const uint16_t *half = (const uint16_t *)base + at;
    if (dtype == VT_F16)
        return n == VF ? vf_load_f16(half) : vf_load_f16_n(half, n);
    return n == VF ? vf_load_bf16(half) : vf_load_bf16_n(half, n);
}

static inline void vf_store_any(void *base, vt_dtype dtype, int64_t at, vf v, int n)
{
    if (dtype == VT_F32)
        vf_store_n((float *)base + at, v, n);
    else if (dtype == VT_F16)
        vf_store_f16_n((uint16_t *)base + at, v, n);
    else if (dtype == VT_FP8_E4M3)
        vf_store_e4m3_n((uint8_t *)base + at, v, n);
    else
        vf_store_bf16_n((uint16_t *)base + at, v, n);
}

#endif
