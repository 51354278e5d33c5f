// y[t, j] = epilogue(scale * norm(x)[t, :] . W[j, :] + bias[j])    for very few tokens,
// norm(x)[t, k] = x[t, k] * n[k] / sqrt(mean of x[t, :]^2 + eps)
//
// linear_small.cu with the norm in front of it, so that a step has one kernel less. Every CTA makes the norm
// (linear_norm_rows.cuh): it repeats some K multiplications a token for 16 K products of weights. For one token of the
// 0.6B shape that is less than the kernel that it saves, and for many tokens it is more.
// Grid, weights, order of K, WARPS: as in linear_small.cu. A result depends on K and WARPS only, never on the batch.
// Bytes: 2 * rows * K; the roof is memory bandwidth.
// Template: K, WARPS, TOKENS (rows of x in shared memory), HALF, PAIR (0 none, 1 silu, 2 gelu), OUT_F32, BIAS,
// PLUS_ONE.

#include "linear_order.cuh"
constexpr int TILES = 1, GROUPS = 1, RESIDUAL = 0, kColumns = 8;
#include "linear_finish.cuh"
#include "linear_stream.cuh"
#include "linear_params.h"
constexpr int kNormPad = NORM_PAD;
#include "linear_norm_rows.cuh"

constexpr int kMost = HALF ? 16 : 8, kPrefetch = kSteps < kMost ? kSteps : kMost;

KERNEL __launch_bounds__(WARPS * 32, 16 / WARPS) linear_normed(const __grid_constant__ linear_params p)
{
    __shared__ WarpSums sums;
    __shared__ __align__(16) u16 rows[TOKENS * kNormRow];
    __shared__ NormSums squares;
    static_assert(K % 8 == 0, "a lane's 16 bytes are all inside a row or all outside");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    int j0 = blockIdx.x * kRowsOut;
    const WeightStream w(p, j0, g, q, warp);

    uint4 wl[kPrefetch], wh[kPrefetch];
#pragma unroll
    for (int i = 0; i < kPrefetch; i++)
        w.fetch(i, wl[i], wh[i]);
    NormWeights norm;
    load_norm(p, norm);
    pdl_go();
    pdl_wait();
    norm_rows(p, norm, rows, squares);

    float c[1][4] = {};
    const u16 *x = rows + min(g, min(TOKENS, p.n_tokens) - 1) * kNormRow + q * 8;
#pragma unroll 8
    for (int s0 = 0; s0 < kSteps; s0 += kPrefetch) {
#pragma unroll
        for (int i = 0; i < kPrefetch; i++) {
            int step = s0 + i, k = w.column(step);
            if (kSteps % kPrefetch && step >= kSteps)
                break;
            bool inside = w.inside(k);
            uint4 b = inside ? load16(x + k) : make_uint4(0, 0, 0, 0);
            mma_bf16(c[0], wl[i].x, wh[i].x, wl[i].y, wh[i].y, b.x, b.y);
            mma_bf16(c[0], wl[i].z, wh[i].z, wl[i].w, wh[i].w, b.z, b.w);
            if (step + kPrefetch < kSteps)
                w.fetch(step + kPrefetch, wl[i], wh[i]);
        }
    }
#pragma unroll
    for (int k = 0; k < 2; k++) { // the lane's columns 2 q and 2 q + 1
        float by = norm_factor(squares, min(2 * q + k, TOKENS - 1), p.eps);
        c[0][k] *= by;
        c[0][k + 2] *= by;
    }
    finish(p, c, j0, sums);
}
