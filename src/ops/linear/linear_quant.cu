// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     for few tokens, W in quantised
// tiles (ops/linear/linear_quant.h)
//
// x [tokens, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]).
// linear_small.cu with another way to come by the weights' fragments: mma m16n8k16, weights on the 16-row side,
// eight tokens on the other, K permuted so that a lane's quants are contiguous, PREFETCH units in registers
// before pdl_wait(), sums in an order that depends on K and WARPS only.
// Grid: one CTA a group of 16 weight rows = 2 tiles of 8 (HALF: one tile; paired: a gate tile and the up tile
// that belongs to it), WARPS warps that share out the units of 128 columns, unit u going to warp u % WARPS.
//
// Quants enter the tensor core as exact integers in bf16; a block's sum of products is scaled in fp32. So nothing
// is rounded that the format does not round, and the scale costs four FMAs a lane for 32 columns x 16 rows, where
// scaling each weight would cost eight and lose bits. A minimum's share is min * sum(x over the block): the sum
// comes from the tensor core too, by a row of ones. HALF has 8 rows of fragments to spare for it; elsewhere it
// costs as many mma again. (Estimated, H200: Q4 at full bandwidth is 36 weights a clock and SM; unpacking takes
// 0.9 integer instructions a weight of 64 lanes, the products 28 % of mma.sync's rate, with ones 56 %.)
// Bytes: those of the tiles, 0.56 a weight for Q4_0; the roof is memory bandwidth.
// Template: TYPE, K, WARPS, TILES (of 8 tokens), HALF, PAIR (0 none, 1 silu, 2 gelu), OUT_F32, BIAS, RESIDUAL.
#include "quant_tile.cuh"
#include "linear_finish.cuh"

struct QuantParams {
    const u16 *x;
    const u8 *w;
    const float *bias;
    const u16 *residual;
    void *y;
    i32 x_stride, y_stride, residual_stride, n_tokens, rows; // rows: outputs (of the pair, where PAIR)
    float scale;
};

constexpr int kSteps = (kUnits + WARPS - 1) / WARPS;
// Units in flight: what 48 registers hold, 28 beside more than 8 tokens. (HALF has half as many bytes a unit, but
// x of so many more units would be asked for early, and spill.)
constexpr int kUnitWords = (kBytes ? 8 : 4) + kHighBits + scale_bytes(4) / 4 + 2 * kSuper;
constexpr int kMost = (TILES > 1 ? 28 : 48) / (kUnitWords * 2);
constexpr int kRounds = (kSteps + kMost - 1) / kMost, kPrefetch = (kSteps + kRounds - 1) / kRounds;
constexpr bool kRagged = kUnits % WARPS != 0; // the last step has no unit for some warps
constexpr int kResident = TILES > 2 || 16 / WARPS < 1 ? 1 : 16 / WARPS;
constexpr u32 kOnes = 0x3f803f80u;

// x of chunk `chunk` for lane quad q, in the order of the quants.
INLINE uint4 load_x(const u16 *x, int chunk, int q)
{
    if constexpr (kHalves) {
        uint2 low = *(const uint2 *)(x + chunk * 32 + 4 * q), high = *(const uint2 *)(x + chunk * 32 + 16 + 4 * q);
        return make_uint4(low.x, low.y, high.x, high.y);
    } else {
        int k = chunk * 32 + 8 * q;
        return K % 32 == 0 || k < K ? load16(x + k) : make_uint4(0, 0, 0, 0);
    }
}

INLINE void add_scaled(float (&c)[4], const float (&s)[4], float low, float high)
{
    c[0] += low * s[0];
    c[1] += low * s[1];
    c[2] += high * s[2];
    c[3] += high * s[3];
}

// Chunk `i` of unit `unit`: products of both tiles' rows with 8 tokens, added to c. FP8: to s, unscaled.
INLINE void chunk_products(const Unit &low, const Unit &high, const u32 (&a)[4], const u32 (&b)[4], int i,
                           const uint4 &x, float (&c)[4], float (&s)[4])
{
    if constexpr (TYPE == FP8) {
        mma_bf16(s, a[0], b[0], a[1], b[1], x.x, x.y);
        mma_bf16(s, a[2], b[2], a[3], b[3], x.z, x.w);
        return;
    }
    float first[4] = {}, second[4] = {}, sums[4] = {};
    mma_bf16(first, a[0], b[0], a[1], b[1], x.x, x.y);
    mma_bf16(kHalves ? second : first, a[2], b[2], a[3], b[3], x.z, x.w);
    add_scaled(c, first, scale_of(low, i, 0), HALF ? 0.f : scale_of(high, i, 0));
    if constexpr (kHalves)
        add_scaled(c, second, scale_of(low, i, 1), HALF ? 0.f : scale_of(high, i, 1));
    if constexpr (kMins && HALF) { // the high rows were ones: rows 8 .. 15 of `first` are sums of x
        c[0] += min_of(low, i) * first[2];
        c[1] += min_of(low, i) * first[3];
    } else if constexpr (kMins) {
        mma_bf16(sums, kOnes, kOnes, kOnes, kOnes, x.x, x.y);
        mma_bf16(sums, kOnes, kOnes, kOnes, kOnes, x.z, x.w);
        add_scaled(c, sums, min_of(low, i), min_of(high, i));
    }
}

KERNEL __launch_bounds__(WARPS * 32, kResident) linear_quant(const __grid_constant__ QuantParams p)
{
    __shared__ WarpSums sums;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    // tiles beyond the last are read as the last: their sums are thrown away
    int tiles = (p.rows + 7) / 8, first = blockIdx.x * (HALF || PAIR ? 1 : 2);
    const u8 *low = p.w + first * kTileBytes;
    const u8 *high = p.w + (PAIR ? tiles + first : min(first + 1, tiles - 1)) * kTileBytes;

    Unit wl[kPrefetch], wh[HALF ? 1 : kPrefetch];
    auto fetch = [&](int step, int slot) {
        int unit = step * WARPS + warp;
        if (kRagged && unit >= kUnits)
            return;
        load_unit(low, unit, lane, wl[slot]);
        if constexpr (!HALF)
            load_unit(high, unit, lane, wh[slot]);
    };
#pragma unroll
    for (int i = 0; i < kPrefetch; i++)
        fetch(i, i);
    pdl_go();
    pdl_wait();

    float c[TILES][4] = {};
    const u16 *x[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
        x[n] = p.x + (i64)min(n * 8 + g, p.n_tokens - 1) * p.x_stride;
#pragma unroll 1
    for (int s0 = 0; s0 < kSteps; s0 += kPrefetch) {
#pragma unroll
        for (int i = 0; i < kPrefetch; i++) {
            int step = s0 + i, unit = step * WARPS + warp;
            if ((kSteps % kPrefetch && step >= kSteps) || (kRagged && unit >= kUnits))
                break;
            const Unit &l = wl[i], &h = wh[HALF ? 0 : i];
            float s[TILES][4] = {};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (kTail && k >= kTail && unit == kUnits - 1)
                    break;
                u32 a[4], b[4] = {};
                quants_of(l, k, a);
                if constexpr (!HALF)
                    quants_of(h, k, b);
                else if constexpr (kMins)
                    b[0] = b[1] = b[2] = b[3] = kOnes;
#pragma unroll
                for (int n = 0; n < TILES; n++)
                    chunk_products(l, h, a, b, k, load_x(x[n], unit * 4 + k, q), c[n], s[n]);
                // x further ahead than a unit of one tile would not fit the registers
                if (k * TILES % 4 == 4 - TILES)
                    __syncwarp();
            }
            if constexpr (TYPE == FP8) {
#pragma unroll
                for (int n = 0; n < TILES; n++)
                    add_scaled(c[n], s[n], scale_of(l, 0, 0), HALF ? 0.f : scale_of(h, 0, 0));
            }
            if (step + kPrefetch < kSteps)
                fetch(step + kPrefetch, i);
        }
    }
    finish(p, c, first * 8, sums);
}
