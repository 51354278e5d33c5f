// head_gate   y[t, h, i] = x[t, h, i]                      SPLIT: x has DIM of q and DIM of a gate a head, bf16
//             y[t, h, i] *= sigmoid(x[t, h, DIM + i])      else
// row_gate    y[t, i] *= sigmoid(sum over j of w[j] x[t, j])
//
// head_gate: one thread for each vector of VEC outputs (8 or 1), N = heads * DIM of them a token. Bytes: 4 N, or 6 N.
// row_gate: a CTA of 128 threads for a token, or for several where tokens are many; every thread sums every 128th
// product, then warps and CTA by a fixed tree. Bytes: 2 hidden + 4 n a token, and w from L2, once a CTA. Both are bound
// by launch latency for few tokens; so row_gate has w in registers before its turn, and x and y under way together.
// Template of head_gate: N, DIM, VEC, SPLIT.
#include "sigmoid_gate_params.h"

INLINE float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

#ifdef SPLIT
KERNEL __launch_bounds__(256) head_gate(const __grid_constant__ head_gate_params p)
{
    constexpr u32 kVectors = N / VEC;
    u32 at = blockIdx.x * 256 + threadIdx.x, t = at / kVectors, i = at % kVectors * VEC;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    const u16 *x = p.x + (i64)t * p.x_stride + i / DIM * 2 * DIM + i % DIM;
    u16 *y = p.y + (i64)t * p.y_stride + i;
    if constexpr (SPLIT && VEC == 8) {
        store16(y, load16(x));
    } else if constexpr (SPLIT) {
        *y = *x;
    } else if constexpr (VEC == 8) {
        f32x8 g = unpack8(load16(x + DIM)), o = unpack8(load16(y));
#pragma unroll
        for (int k = 0; k < 8; k++)
            o.v[k] *= sigmoid(g.v[k]);
        store16(y, pack8(o));
    } else {
        *y = f32_bf16(bf16_f32(*y) * sigmoid(bf16_f32(x[DIM])));
    }
}
#else
KERNEL __launch_bounds__(128) row_gate(const __grid_constant__ row_gate_params p)
{
    __shared__ float part[2][4];
    constexpr int kAhead = 16, kOut = 4; // weights before the turn, and outputs, that a thread has in registers
    float w[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; i++)
        w[i] = i * 128 + threadIdx.x < p.hidden ? __ldg(p.w + i * 128 + threadIdx.x) : 0.f;
    pdl_go();
    pdl_wait();
    u32 odd = 0;
    for (u32 t = blockIdx.x; t < p.n_tokens; t += gridDim.x, odd ^= 1) {
        const u16 *x = p.x + (i64)t * p.x_stride;
        u16 *y = p.y + (i64)t * p.y_stride;
        float sum = 0.f, v[kAhead], out[kOut];
#pragma unroll
        for (int i = 0; i < kAhead; i++)
            v[i] = i * 128 + threadIdx.x < p.hidden ? bf16_f32(x[i * 128 + threadIdx.x]) : 0.f;
#pragma unroll
        for (int i = 0; i < kOut; i++)
            out[i] = i * 128 + threadIdx.x < p.n ? bf16_f32(y[i * 128 + threadIdx.x]) : 0.f;
#pragma unroll
        for (int i = 0; i < kAhead; i++)
            sum = fmaf(w[i], v[i], sum);
        for (int j = kAhead * 128 + threadIdx.x; j < p.hidden; j += 128)
            sum = fmaf(p.w[j], bf16_f32(x[j]), sum);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            part[odd][threadIdx.x / 32] = sum;
        __syncthreads();
        float gate = sigmoid((part[odd][0] + part[odd][1]) + (part[odd][2] + part[odd][3]));
#pragma unroll
        for (int i = 0; i < kOut; i++)
            if (i * 128 + threadIdx.x < p.n)
                y[i * 128 + threadIdx.x] = f32_bf16(out[i] * gate);
        for (int i = kOut * 128 + threadIdx.x; i < p.n; i += 128)
            y[i] = f32_bf16(bf16_f32(y[i]) * gate);
    }
}
#endif
