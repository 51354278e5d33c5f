// RMSNorm, step 2 of 5: a warp a row.
//
// What changes against step 1: the 32 lanes of a warp read 32 neighbouring elements, 64 bytes,
// and the sum of a row goes through shuffles (warp_sum).
// Counter that it changes: sectors per request of global loads, from 32 to 2 for x (4 bytes a
// lane of the weights: 4)
//     ncu --metrics l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Expect an order of magnitude. What is left: a request brings 64 bytes, so the SM issues 8
// times as many as it must.
// Next: rmsnorm_step3_vector.cu
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

constexpr i32 kWarps = 8;

LAB_KERNEL(rmsnorm_params, kWarps * 32)
{
    i32 t = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= p.n_rows) // the same for all lanes of a warp
        return;
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride;
    float sum = 0.f;
    for (i32 i = lane; i < HIDDEN; i += 32)
        sum += bf16_f32(x[i]) * bf16_f32(x[i]);
    float scale = rsqrtf(warp_sum(sum) / HIDDEN + p.eps);
    for (i32 i = lane; i < HIDDEN; i += 32)
        y[i] = f32_bf16(bf16_f32(x[i]) * scale * (p.weight[i] + (float)PLUS_ONE));
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = (p.n_rows + kWarps - 1) / kWarps;
}
