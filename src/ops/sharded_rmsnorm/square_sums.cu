// y[t, p] = sum_i x_p[t, i]^2          x_p [rows, cols_p] bf16, y [rows, 2] fp32
//
// Grid: x: rows, y: parts. A CTA sums a row of a part: threads in fp32, warps by shuffles, then the warps in their
// order. So the bits do not depend on the rows of a step. Bytes: 2 cols a row; bound by latency for few rows, by
// memory for many. Template: VEC (8 or 1).
#include "comm_params.h"
#include "sharded_rmsnorm_params.h"

constexpr u32 kWarps = SQUARE_SUMS_THREADS / 32;

KERNEL __launch_bounds__(SQUARE_SUMS_THREADS) square_sums(const __grid_constant__ square_sums_params p)
{
    __shared__ float of_warp[kWarps];
    u32 part = blockIdx.y;
    const u16 *x = p.x[part] + (u64)blockIdx.x * p.stride[part];
    float sum = 0.f;
    pdl_go();
    pdl_wait();
    for (u32 at = threadIdx.x * VEC; at < p.cols[part]; at += SQUARE_SUMS_THREADS * VEC) {
        if constexpr (VEC == 8) {
            f32x8 v = unpack8(load16(x + at));
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum = fmaf(v.v[k], v.v[k], sum);
        } else {
            float v = bf16_f32(x[at]);
            sum = fmaf(v, v, sum);
        }
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    sum = 0.f;
#pragma unroll
    for (u32 w = 0; w < kWarps; w++)
        sum += of_warp[w];
    p.y[(u64)blockIdx.x * SHARDED_PARTS + part] = sum;
}
