// Weights in quantised tiles as the first operand of wgmma: linear_quant_sm90.cu and moe_quant_sm90.cu share this. A
// lane unpacks its 8 elements of a chunk of 32 columns, scales them and rounds to bf16.
// quant_tile.cuh comes before this file.
//
// A weight is d * (n - c) + e: n an integer, d its scale, c an integer of the chunk, e what is left of the minimum.
// Types without minima have c = OFFSET and e = 0; the others c = -min / d, rounded, so that e is at most d / 2.
// Two weights take three instructions behind the bit operations that cut n out of a word:
//
//   m = n - c               exact in bf16, from the word's bits (quant_tile.cuh, raw_quants_of()), times 2^-6
//   t = m * low + e         d is the sum of two bf16, high + low: low has d's bits behind the eighth
//   w = m * high + t        the one rounding that counts
//
// m * low is exact where m and low have 8 bits together, as in Q4_0 and Q5_0: w is d * (n - c), rounded once.
// Elsewhere t is rounded to 8 bits, of at most 2^-8 of m * d and of e: an error of 2^-17 of the weight, and with
// minima 2^-10 of d or less, where w's own rounding has 2^-9 of the weight.

// Two E4M3 as f16, exactly.
INLINE u32 e4m3x2_f16(u32 v)
{
    u32 r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)v));
    return r;
}

constexpr bool kSplit = !kFp8 && !kPower; // the form above
constexpr u32 kMinusZero = 0x80008000u;
// An offset, a power of two (bytes are signed once raw_quants_of() has made them 128 larger), times -2^-6.
constexpr int log2_of(int v) { return v > 1 ? 1 + log2_of(v / 2) : 0; }
constexpr u32 kMinusOffset = (0x8000u | (u32)(121 + log2_of(kBytes ? 128 : OFFSET)) << 7) * 0x00010001u;

// The scales of a chunk of a row. kSplit: the bf16 pair high, low of 2^6 d, and the pair -c * 2^-6, e; else an fp32.
struct LaneScale {
    u32 scale[2], add[2]; // the second: of its second 16 columns, where scales cover 16
};

INLINE u32 low_twice(u32 v) { return __byte_perm(v, 0, 0x1010); }
INLINE u32 high_twice(u32 v) { return __byte_perm(v, 0, 0x3232); }

// Chunk c of a unit as bf16, from the scales of its chunk. a[p]: elements 2 p and 2 p + 1. E4M3 goes by the GPU's own
// conversion (NaN codes stay NaN), powers of two are bf16.
INLINE void dequantise(const Unit &u, int c, const LaneScale &s, u32 (&a)[4])
{
    float scale = __uint_as_float(s.scale[0]);
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
            a[p] = fma_bf16x2(v[p], both, kMinusZero); // exact: a power of two
    } else {
        constexpr u32 kFrom = 0x7f007f00u, kFromOdd = kFrom - (kOddShift << 7) * 0x00010001u; // 2^127
        u32 v[4];
        raw_quants_of(u, c, v);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            int half = kHalves && p >= 2;
            u32 centre = kMins ? low_twice(s.add[half]) : kMinusOffset;
            u32 rest = kMins ? high_twice(s.add[half]) : kMinusZero;
            v[p] = fma_bf16x2(v[p], p % 2 ? kFromOdd : kFrom, centre);
            a[p] = fma_bf16x2(v[p], low_twice(s.scale[half]), fma_bf16x2(v[p], high_twice(s.scale[half]), rest));
        }
    }
}

// The lanes of a quad share this: lane q has made the scales of chunk q.
INLINE LaneScale scale_from(const LaneScale &mine, int chunk)
{
    if constexpr (kFp8)
        return mine;
    LaneScale s = {};
#pragma unroll
    for (int i = 0; i < 1 + kHalves; i++) {
        s.scale[i] = __shfl_sync(~0u, mine.scale[i], chunk, 4);
        if constexpr (kMins)
            s.add[i] = __shfl_sync(~0u, mine.add[i], chunk, 4);
    }
    return s;
}

// Chunk c of a lane's two rows, low and high, as wgmma deals its first operand to lanes.
INLINE void dequantise_pair(const Unit &low, const Unit &high, int c, const LaneScale &scale_low,
                            const LaneScale &scale_high, u32 (&to)[8])
{
    u32 l[4], h[4];
    dequantise(low, c, scale_from(scale_low, c), l);
    dequantise(high, c, scale_from(scale_high, c), h);
#pragma unroll
    for (int p = 0; p < 4; p++)
        to[2 * p] = l[p], to[2 * p + 1] = h[p];
}

INLINE float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The scales of chunk lane % 4 in row lane / 4 of a unit of CHUNKS chunks.
template <int CHUNKS> INLINE LaneScale my_scale(const u8 *pair, const u8 *unit)
{
    int lane = threadIdx.x % 32;
    RowScale r = row_scale<CHUNKS>(pair, unit, lane / 4, min(lane % 4, CHUNKS - 1));
    LaneScale s = {};
#pragma unroll
    for (int i = 0; i < 1 + kHalves; i++) {
        float d = r.scale[i];
        if constexpr (!kSplit) {
            s.scale[i] = __float_as_uint(d);
            continue;
        }
        float high = bf16_low(pack_bf16(64.f * d, 0.f));
        s.scale[i] = pack_bf16(high, fmaf(64.f, d, -high));
        if constexpr (kMins) { // integers up to 256 are exact; of a scale of 0 any c will do
            float c = rintf(fminf(fmaxf(r.min[i] * reciprocal(d), -128.f), 127.f)); // minus c
            s.add[i] = pack_bf16(c * 0x1p-6f, fmaf(-c, d, r.min[i]));
        }
    }
    return s;
}
