// A planted fault: an SM holds two CTAs, by their shared memory, and the grid is two CTAs and an eighth of one an SM.
// All CTAs take as long, so in half of the time an eighth of the SMs work.
// cause: tail
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

LAB_KERNEL(rmsnorm_params, 512)
{
    __shared__ float part[512 / 32];
    for (i32 t = blockIdx.x; t < p.n_rows; t += gridDim.x) {
        const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
        u16 *y = p.y + (i64)t * p.y_stride;
        float sum = 0.f;
        for (i32 i = threadIdx.x; i < HIDDEN; i += 512)
            sum += bf16_f32(x[i]) * bf16_f32(x[i]);
        sum = warp_sum(sum);
        __syncthreads(); // the last row's sums have been read
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.f;
        for (i32 w = 0; w < 512 / 32; w++)
            sum += part[w];
        float scale = rsqrtf(sum / HIDDEN + p.eps);
        for (i32 i = threadIdx.x; i < HIDDEN; i += 512)
            y[i] = f32_bf16(bf16_f32(x[i]) * scale * (p.weight[i] + (float)PLUS_ONE));
    }
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = 2 * sms + (sms / 8 > 0 ? sms / 8 : 1);
    launch.shared_bytes = 100 << 10;
}
