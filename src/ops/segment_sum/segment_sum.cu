// sum[s, :] + rest[s, :] = the sum of x[r, :] over the rows r of segment s      x [rows, N] bf16, sums fp32
//
// Grid: (columns / 64, segments), 256 threads. A warp takes every eighth row of the segment and 64 columns, two of
// them a lane; thread i of the first warp then adds the eight sums of its columns in the order of the warps. All sums
// are of double precision: an SM of compute capability 9.0 makes 64 of them a clock, and memory bounds the kernel.
// Bytes: 2 N a row, read once. Template: N.
#include "segment_sum_params.h"

KERNEL __launch_bounds__(256) segment_sum(const __grid_constant__ segment_sum_params p)
{
    __shared__ double part[8][64];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 64 + 2 * lane;
    segment_rows s = p.segment[blockIdx.y];
    pdl_go();
    pdl_wait();
    if (s.n == 0)
        return;
    bool first = column < N, second = column + 1 < N;
    double a = 0, b = 0;
    const u16 *x = p.x + (i64)s.first * p.x_stride + column;
#pragma unroll 8
    for (i32 r = warp; r < s.n; r += 8) {
        const u16 *at = x + (i64)r * p.x_stride;
        a += first ? (double)bf16_f32(at[0]) : 0.0;
        b += second ? (double)bf16_f32(at[1]) : 0.0;
    }
    part[warp][2 * lane] = a;
    part[warp][2 * lane + 1] = b;
    __syncthreads();
    u32 i = threadIdx.x;
    column = blockIdx.x * 64 + i;
    if (i >= 64 || column >= N)
        return;
    double total = 0;
#pragma unroll
    for (int w = 0; w < 8; w++)
        total += part[w][i];
    i64 out = (i64)blockIdx.y * p.y_stride + column;
    float sum = (float)total;
    p.sum[out] = sum;
    p.rest[out] = (float)(total - (double)sum);
}
