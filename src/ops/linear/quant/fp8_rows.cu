// Activations for linear_fp8_sm90.cu and gemm_fp8_sm90.cu: out = x in E4M3, with a scale for each token and unit of 128
// columns.
//
//   x      [n_tokens][K] bf16
//   out    [n_tokens][K] bytes, the columns of a unit in the order of quantised tiles: lane q has columns 8 q + 0, 2,
//          1, 3 of each chunk of 32, its first word, and 8 q + 4, 6, 5, 7, its second
//            AS_TILES    first and second word of chunk 2 i and of 2 i + 1 are bytes 64 i + 16 q ..: a tile in memory
//            else        they are bytes 4 q .. and 16 + 4 q .. of their chunk: a tile in registers
//   scale  [K / 128][padded]: the largest |x| of the unit / 448; 0 for tokens from n_tokens on
//
// x / scale is rounded to nearest. A unit of zeros has the scale 0, and so has one of numbers whose scale has no
// reciprocal. A quad has a unit. Grid: pieces of THREADS / 4 units, those of a token side by side.
// Bytes: 3 a column. Bound by a launch for few tokens, by L2 or memory for many.
// Template: K (a multiple of 128), AS_TILES, THREADS.
#include "linear_params.h"

// Two values in E4M3: v in the low byte. Rounds to nearest, ties to even; beyond +-448 it gives +-448.
INLINE u32 e4m3_pair(float v, float w)
{
    u16 both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(w), "f"(v));
    return both;
}

// Elements 0, 2, 1, 3 of two bf16 pairs.
INLINE u32 e4m3_word(u32 first, u32 second, float by)
{
    return e4m3_pair(bf16_low(first) * by, bf16_low(second) * by) |
           e4m3_pair(bf16_high(first) * by, bf16_high(second) * by) << 16;
}

KERNEL __launch_bounds__(THREADS) fp8_rows(const __grid_constant__ fp8_rows_params p)
{
    constexpr int kUnits = K / 128;
    int i = (blockIdx.x * THREADS + threadIdx.x) / 4, token = i / kUnits, unit = i % kUnits, q = threadIdx.x % 4;
    uint4 v[4];
    pdl_go();
    pdl_wait();
    const u16 *from = p.x + (i64)min(token, p.n_tokens - 1) * p.x_stride + unit * 128 + q * 8;
    float most = 0.f;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        v[c] = load16(from + c * 32);
        const u32 pair[4] = {v[c].x, v[c].y, v[c].z, v[c].w};
#pragma unroll
        for (int n = 0; n < 4; n++)
            most = fmaxf(most, fmaxf(fabsf(bf16_low(pair[n])), fabsf(bf16_high(pair[n]))));
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    if (token >= p.padded)
        return;
    bool zero = token >= p.n_tokens || most < 0x1p-100f;
    if (q == 0)
        p.scale[(i64)unit * p.padded + token] = zero ? 0.f : most / 448.f;
    if (token >= p.n_tokens)
        return;
    float by = zero ? 0.f : 448.f / most;
    u8 *out = p.out + (i64)token * K + unit * 128;
    u32 word[8];
#pragma unroll
    for (int c = 0; c < 4; c++)
        word[2 * c] = e4m3_word(v[c].x, v[c].y, by), word[2 * c + 1] = e4m3_word(v[c].z, v[c].w, by);
    if constexpr (AS_TILES) {
        store16(out + q * 16, make_uint4(word[0], word[1], word[2], word[3]));
        store16(out + 64 + q * 16, make_uint4(word[4], word[5], word[6], word[7]));
    } else {
#pragma unroll
        for (int n = 0; n < 8; n++)
            *(u32 *)(out + n * 16 + q * 4) = word[n];
    }
}
