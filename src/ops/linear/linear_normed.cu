// y[t, j] = epilogue(scale * norm(x)[t, :] . W[j, :] + bias[j])    for very few tokens,
// norm(x)[t, k] = x[t, k] * n[k] / sqrt(mean of x[t, :]^2 + eps)
//
// linear_small.cu with the norm in front of it, so that a step has one kernel less. Every CTA makes x * n of all tokens
// in shared memory, as bf16, and their sums of squares on the way; the root divides the products, not x. So x is read
// once, and what was rounded in front of the division is rounded no more than behind it. A CTA repeats some K
// multiplications a token for 16 K products of weights: for one token of the 0.6B shape that is less than the kernel
// that it saves, and for many tokens it is more.
// Grid, weights, order of K, WARPS: as in linear_small.cu. A result depends on K and WARPS only, never on the batch.
// Bytes: 2 * rows * K; the roof is memory bandwidth.
// Template: K, WARPS, TOKENS (rows of x in shared memory), HALF, PAIR (0 none, 1 silu, 2 gelu), OUT_F32, BIAS,
// PLUS_ONE.

#include "linear_order.cuh"
constexpr int TILES = 1, GROUPS = 1, RESIDUAL = 0, kColumns = 8;
#include "linear_finish.cuh"
#include "linear_stream.cuh"
#include "linear_params.h"

constexpr int kMost = HALF ? 16 : 8, kPrefetch = kSteps < kMost ? kSteps : kMost;
constexpr int kThreads = WARPS * 32, kVectors = K / 8, kPer = (kVectors + kThreads - 1) / kThreads;
constexpr int kRow = kChunks * 32 + 32; // elements: the rows of four tokens begin in different banks

KERNEL __launch_bounds__(kThreads, 16 / WARPS) linear_normed(const __grid_constant__ linear_params p)
{
    __shared__ WarpSums sums;
    __shared__ __align__(16) u16 scaled_x[TOKENS][kRow];
    __shared__ float squares[TOKENS][WARPS];
    static_assert(K % 8 == 0, "a lane's 16 bytes are all inside a row or all outside");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    int j0 = blockIdx.x * kRowsOut;
    const WeightStream w(p, j0, g, q, warp);

    uint4 wl[kPrefetch], wh[kPrefetch];
#pragma unroll
    for (int i = 0; i < kPrefetch; i++)
        w.fetch(i, wl[i], wh[i]);
    float4 n[kPer][2];
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        int v = i * kThreads + threadIdx.x;
#pragma unroll
        for (int k = 0; k < 2; k++)
            n[i][k] = v < kVectors ? __ldg((const float4 *)p.norm + v * 2 + k) : make_float4(0.f, 0.f, 0.f, 0.f);
    }
    pdl_go();
    pdl_wait();

#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            int v = i * kThreads + threadIdx.x;
            if (v >= kVectors || t >= p.n_tokens)
                continue;
            f32x8 x = unpack8(load16(p.x + (i64)t * p.x_stride + v * 8));
            float4 a = n[i][0], b = n[i][1];
            const float by[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int k = 0; k < 8; k++) {
                sum = fmaf(x.v[k], x.v[k], sum);
                x.v[k] *= by[k] + (float)PLUS_ONE;
            }
            store16(&scaled_x[t][v * 8], pack8(x));
        }
        sum = warp_sum(sum);
        if (lane == 0)
            squares[t][warp] = sum;
    }
    __syncthreads();

    float c[1][4] = {};
    const u16 *x = &scaled_x[min(g, min(TOKENS, p.n_tokens) - 1)][q * 8];
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
        int t = min(2 * q + k, TOKENS - 1);
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            sum += squares[t][i];
        float by = rsqrtf(sum / K + p.eps);
        c[0][k] *= by;
        c[0][k + 2] *= by;
    }
    finish(p, c, j0, sums);
}
