// RMSNorm, step 1 of 5: naive. One thread a row.
//
// What it does wrong: the 32 threads of a warp read 32 rows, so every 2-byte load of a warp
// touches 32 sectors of 32 bytes and uses 2 bytes of each.
// Counter to look at: sectors per request of global loads
//     ncu --metrics l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Here it is 32 (the worst there is). Expect a few percent of the memory roof at 16,384 rows of
// 4,096: sectors come again and again for their next 2 bytes, and 16,384 threads are an eighth
// of what an H200's SMs hold.
// Next: rmsnorm_step2_warp.cu lets neighbouring threads read neighbouring elements.
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

LAB_KERNEL(rmsnorm_params, 128)
{
    i32 t = blockIdx.x * 128 + threadIdx.x;
    if (t >= p.n_rows)
        return;
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride;
    float sum = 0.f;
    for (i32 i = 0; i < HIDDEN; i++)
        sum += bf16_f32(x[i]) * bf16_f32(x[i]);
    float scale = rsqrtf(sum / HIDDEN + p.eps);
    for (i32 i = 0; i < HIDDEN; i++)
        y[i] = f32_bf16(bf16_f32(x[i]) * scale * (p.weight[i] + (float)PLUS_ONE));
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = (p.n_rows + 127) / 128;
}
