// Index (the embedding lookup), step 2 of 5: a warp a token.
//
// What changes against step 1: the 32 lanes of a warp copy 32 neighbouring elements of one row,
// 64 bytes.
// Counter that it changes: sectors per request of global loads, from 32 to 2
//     ncu --metrics l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Expect an order of magnitude. What is left: a request brings 64 bytes, so the SM issues 8
// times as many as it must.
// Next: index_step3_vector.cu
#include "lab_kernel.cuh"
#include "embed_params.h"

constexpr i32 kWarps = 8;

LAB_KERNEL(embed_params, kWarps * 32)
{
    i32 t = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= p.n_tokens)
        return;
    i32 token = p.tokens[t];
    if (token < 0)
        token = p.pool[-1 - token];
    const u16 *from = (const u16 *)p.table + (i64)token * HIDDEN;
    u16 *to = p.y + (i64)t * HIDDEN;
    for (i32 i = lane; i < HIDDEN; i += 32)
        to[i] = SCALED ? f32_bf16(bf16_f32(from[i]) * p.scale) : from[i];
}

LAB_LAUNCH(embed_params)
{
    launch.grid = (p.n_tokens + kWarps - 1) / kWarps;
}
