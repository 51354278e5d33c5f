// A planted fault: a lane keeps its part of a row in registers, for CTAs of 1,024 threads, which leave 64 to a thread.
// cause: spill
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

constexpr i32 kPer = (HIDDEN + 31) / 32; // values of a lane

LAB_KERNEL(rmsnorm_params, 1024)
{
    i32 t = blockIdx.x * 32 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= p.n_rows)
        return;
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride;
    float v[kPer], sum = 0.f;
#pragma unroll
    for (i32 k = 0; k < kPer; k++) {
        i32 i = k * 32 + lane;
        v[k] = i < HIDDEN ? bf16_f32(x[i]) : 0.f;
        sum += v[k] * v[k];
    }
    float scale = rsqrtf(warp_sum(sum) / HIDDEN + p.eps);
#pragma unroll
    for (i32 k = 0; k < kPer; k++) {
        i32 i = k * 32 + lane;
        if (i < HIDDEN)
            y[i] = f32_bf16(v[k] * scale * (p.weight[i] + (float)PLUS_ONE));
    }
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = (p.n_rows + 31) / 32;
}
