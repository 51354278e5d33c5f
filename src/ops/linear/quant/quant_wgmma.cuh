// Weights in quantised tiles as the first operand of wgmma: linear_quant_sm90.cu and moe_quant_sm90.cu share this. A
// lane unpacks its 8 elements of a chunk of 32 columns, scales them in fp32 and rounds to bf16, as quant_panel.cu does.
// quant_tile.cuh comes before this file.

// Two E4M3 as f16, exactly.
INLINE u32 e4m3x2_f16(u32 v)
{
    u32 r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)v));
    return r;
}

// Chunk c of a unit as bf16, from the scales of its chunk. a[p]: elements 2 p and 2 p + 1. Each form takes the fewest
// instructions that give scale * quant + min with one rounding to bf16: E4M3 by the GPU's own conversion (NaN codes
// stay NaN), powers of two as bf16.
INLINE void dequantise(const Unit &u, int c, const RowScale &s, u32 (&a)[4])
{
    float scale = s.scale[0];
    if constexpr (kFp8) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 w = u.low[2 * c + i], even = e4m3x2_f16(w), odd = e4m3x2_f16(w >> 16);
            a[2 * i] = pack_bf16(scale * f16_f32((u16)even), scale * f16_f32((u16)odd));
            a[2 * i + 1] = pack_bf16(scale * f16_f32((u16)(even >> 16)), scale * f16_f32((u16)(odd >> 16)));
        }
    } else if constexpr (kPower) {
        u32 v[4], both = pack_bf16(scale, scale);
        quants_of(u, c, v);
#pragma unroll
        for (int p = 0; p < 4; p++)
            a[p] = fma_bf16x2(v[p], both, 0x80008000u); // exact: a power of two; minus zero added
    } else if constexpr (kBytes) {
        u32 v[4];
        quants_of(u, c, v);
#pragma unroll
        for (int p = 0; p < 4; p++)
            a[p] = pack_bf16(scale * bf16_low(v[p]), scale * bf16_high(v[p]));
    } else {
        u32 v[4];
        magic_quants_of(u, c, v);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            float of = s.scale[kHalves && p >= 2], add = kMins ? s.min[kHalves && p >= 2] : -kMagicOffset * of;
            a[p] = pack_bf16(fmaf(of, bf16_low(v[p]), add), fmaf(of, bf16_high(v[p]), add));
        }
    }
}

// The lanes of a quad share this: lane q has made the scales of chunk q.
INLINE RowScale scale_from(const RowScale &mine, int chunk)
{
    if constexpr (kFp8)
        return mine;
    RowScale s = {};
    s.scale[0] = __shfl_sync(~0u, mine.scale[0], chunk, 4);
    if constexpr (kHalves)
        s.scale[1] = __shfl_sync(~0u, mine.scale[1], chunk, 4);
    if constexpr (kMins)
        s.min[0] = __shfl_sync(~0u, mine.min[0], chunk, 4);
    if constexpr (kMins && kHalves)
        s.min[1] = __shfl_sync(~0u, mine.min[1], chunk, 4);
    return s;
}

// The scales of chunk lane % 4 in row lane / 4 of a unit of CHUNKS chunks.
template <int CHUNKS> INLINE RowScale my_scale(const u8 *pair, const u8 *unit)
{
    int lane = threadIdx.x % 32;
    RowScale s = row_scale<CHUNKS>(pair, unit, lane / 4, min(lane % 4, CHUNKS - 1));
    if constexpr (kMins) {
        s.min[0] -= kMagicOffset * s.scale[0];
        s.min[1] -= kMagicOffset * s.scale[1];
    }
    return s;
}
