// Elements of a KV pool are bf16, or with FP8 they are E4M3: a sign bit, 4 bits of exponent with bias 7, 3 bits of
// mantissa; no infinity, largest value 448, subnormals in steps of 2^-9. The NaN codes are read as +-480.
//
// The conversions use integer operations and bf16 fused multiply-adds. These are exact here, and every GPU since
// sm_80 has them. The cvt instruction supports E4M3 only from sm_89 on, and only through f16; it was not tried.
#if FP8
typedef u8 kv_t;
#else
typedef u16 kv_t;
#endif
constexpr int kKvVec = 16 / sizeof(kv_t); // elements in 16 bytes

// Convert four E4M3 values to two pairs of bf16: e4m3_even converts bytes 0 and 2, e4m3_odd bytes 1 and 3. The bits
// are moved to their places in a bf16; the factor 2^120 makes up for the different exponent bias. The fused
// multiply-add adds minus zero, so that zeros keep their sign.
INLINE u32 e4m3_even(u32 w)
{
    return fma_bf16x2((w << 8 & 0x80008000u) | (w << 4 & 0x07f007f0u), 0x7b807b80u, 0x80008000u);
}
INLINE u32 e4m3_odd(u32 w)
{
    return fma_bf16x2((w & 0x80008000u) | (w >> 4 & 0x07f007f0u), 0x7b807b80u, 0x80008000u);
}

// Rounds to nearest, ties to even. Values beyond +-448 become +-448; NaN stays NaN.
INLINE u32 f32_e4m3(float v)
{
    u32 bits = __float_as_uint(v), size = bits & 0x7fffffffu;
    u32 small = __float_as_uint(__uint_as_float(size) + 16384.f) - 0x46800000u; // below 2^-6: multiples of 2^-9
    u32 large = ((size + 0x7ffffu + (size >> 20 & 1)) >> 20) - (120u << 3);
    u32 code = size > 0x7f800000u ? 0x7fu : size < 0x3c800000u ? small : min(large, 0x7eu);
    return code | (bits >> 24 & 0x80u);
}

INLINE float kv_f32(u16 v) { return bf16_f32(v); }
INLINE float kv_f32(u8 v) { return bf16_low(e4m3_even(v)); }
INLINE u16 kv_make(float v, u16) { return f32_bf16(v); }
INLINE u8 kv_make(float v, u8) { return (u8)f32_e4m3(v); }

// Stores eight elements to an address that is aligned to their total size.
INLINE void kv_store8(u16 *to, const f32x8 &x) { store16(to, pack8(x)); }
INLINE void kv_store8(u8 *to, const f32x8 &x)
{
    u32 w[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        w[i] = f32_e4m3(x.v[4 * i]) | f32_e4m3(x.v[4 * i + 1]) << 8 | f32_e4m3(x.v[4 * i + 2]) << 16 |
               f32_e4m3(x.v[4 * i + 3]) << 24;
    *(uint2 *)to = make_uint2(w[0], w[1]);
}
