// Elements of a KV pool: bf16, or with FP8 E4M3 (sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinity,
// largest 448, subnormals of 2^-9). The codes of NaN read as +-480. All of it in integers and bf16 fused
// multiply-adds, which are exact here and which every GPU since sm_80 has: cvt knows E4M3 from sm_89 on only, by
// way of f16, and was not tried.
#if FP8
typedef u8 kv_t;
#else
typedef u16 kv_t;
#endif
constexpr int kKvVec = 16 / sizeof(kv_t); // elements of 16 bytes

// Four E4M3 as two pairs of bf16: bytes 0 and 2, and bytes 1 and 3. The bits at their places in bf16, times 2^120
// for the other bias; minus zero is added, so that zeros keep their sign.
INLINE u32 e4m3_even(u32 w)
{
    return fma_bf16x2((w << 8 & 0x80008000u) | (w << 4 & 0x07f007f0u), 0x7b807b80u, 0x80008000u);
}
INLINE u32 e4m3_odd(u32 w)
{
    return fma_bf16x2((w & 0x80008000u) | (w >> 4 & 0x07f007f0u), 0x7b807b80u, 0x80008000u);
}

// To nearest, ties to even; beyond 448 the nearest end; NaN stays NaN.
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

// Eight elements to an address aligned to them.
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
