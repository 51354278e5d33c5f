// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     for few tokens, where
// reading the weights takes most of the time
//
// x [tokens, K] bf16, W [rows, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]).
// The weights are the 16-row operand of mma m16n8k16, and eight tokens are the other, so up to 8 tokens
// cost what one does.
// Grid: one CTA for GROUPS groups of 16 weight rows each (HALF: 8; paired: 8 gate rows and the 8 up rows that
// belong to them). WARPS warps divide K in chunks of 32 elements: chunk c goes to warp c % WARPS. The
// order of K within a chunk is permuted so that each lane reads 16 contiguous bytes of a row: elements
// 8 q .. 8 q + 7 of quad lane q serve as the fragments' k = 2q, 2q+1, 2q+8, 2q+9 of two mma steps. x is
// read in the same order, so the products match. kPrefetch chunks of weights are loaded to registers
// before pdl_wait(), so that the stream of weights does not stop between kernels. With one tile, bias
// and residual are loaded in front of the product too. The warps' sums are
// added in rising order: a row's result depends on K and WARPS only, never on the batch.
// Bytes: 2 * rows * K; the roof is memory bandwidth.
// Template: K, WARPS (of a group), GROUPS (of a CTA), TILES (of 8 tokens), HALF, PAIR (0 none, 1 silu, 2 gelu),
// OUT_F32, BIAS, RESIDUAL.

#include "linear_order.cuh"
constexpr int kColumns = TILES * 8;
#include "linear_finish.cuh"
#include "linear_stream.cuh"
#include "linear_params.h"

constexpr int kMost = HALF && TILES <= 2 ? 16 : 8, kPrefetch = kSteps < kMost ? kSteps : kMost;

// CTAs that an SM shall hold: enough to keep many loads in flight, and not more than the registers allow.
// Two tiles of tokens fit into the registers of 16 warps. ptxas spills where nothing is added and no pair made, and
// pairs below level 90.
constexpr int kTwoTiles = (PAIR && LEVEL >= 90) || RESIDUAL || HALF ? 16 : 8;
constexpr int kCtaWarps = GROUPS * WARPS;
constexpr int kResident = TILES > 2 ? 1 : TILES == 2 ? kTwoTiles / kCtaWarps : 20 / kCtaWarps;

KERNEL __launch_bounds__(kCtaWarps * 32, kResident)
    linear_small(const __grid_constant__ linear_params p)
{
    __shared__ WarpSums sums[GROUPS];
    static_assert(K % 8 == 0, "a lane's 16 bytes are all inside a row or all outside");
    int lane = threadIdx.x % 32, warp = group_thread() / 32, g = lane / 4, q = lane % 4;
    int group = GROUPS > 1 ? threadIdx.x / (WARPS * 32) : 0, j0 = (blockIdx.x * GROUPS + group) * kRowsOut;
    const WeightStream w(p, j0, g, q, warp);

    uint4 wl[kPrefetch], wh[kPrefetch];
#pragma unroll
    for (int i = 0; i < kPrefetch; i++)
        w.fetch(i, wl[i], wh[i]);
    constexpr bool kBeside = TILES == 1;
    Beside beside;
    if constexpr (kBeside)
        load_bias(p, j0, beside);
    pdl_go();
    pdl_wait();
    if constexpr (kBeside) {
        load_residual(p, j0, beside);
        __syncwarp();
    }

    float c[TILES][4] = {};
    const u16 *x[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
        x[n] = p.x + (i64)min(n * 8 + g, p.n_tokens - 1) * p.x_stride + q * 8;
#pragma unroll (TILES > 2 ? 1 : 8)
    for (int s0 = 0; s0 < kSteps; s0 += kPrefetch) {
#pragma unroll
        for (int i = 0; i < kPrefetch; i++) {
            int step = s0 + i, k = w.column(step);
            if (kSteps % kPrefetch && step >= kSteps)
                break;
            bool inside = w.inside(k);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                uint4 b = inside ? load16(x[n] + k) : make_uint4(0, 0, 0, 0);
                mma_bf16(c[n], wl[i].x, wh[i].x, wl[i].y, wh[i].y, b.x, b.y);
                mma_bf16(c[n], wl[i].z, wh[i].z, wl[i].w, wh[i].w, b.z, b.w);
            }
            if (step + kPrefetch < kSteps)
                w.fetch(step + kPrefetch, wl[i], wh[i]);
            // Four tiles of x, eight steps ahead, would not fit into the registers. Two steps do.
            if (TILES > 2 && i % 2)
                asm volatile("" ::: "memory");
        }
    }
    finish<kBeside>(p, c, j0, sums[group], beside);
}
