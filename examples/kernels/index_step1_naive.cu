// Index (the embedding lookup), step 1 of 5: naive. One thread a token.
//
// y[t, :] = table[token[t], :]. What it does wrong: the 32 threads of a warp copy 32 rows side
// by side, so every 2-byte load of a warp touches 32 sectors of 32 bytes and uses 2 bytes of
// each; the stores do the same.
// Counter to look at: sectors per request of global loads
//     ncu --metrics l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
// Here it is 32 (the worst there is). Expect a few percent of the memory roof at 16,384 tokens
// of 4,096 columns.
// Next: index_step2_warp.cu
#include "lab_kernel.cuh"
#include "embed_params.h"

LAB_KERNEL(embed_params, 128)
{
    i32 t = blockIdx.x * 128 + threadIdx.x;
    if (t >= p.n_tokens)
        return;
    i32 token = p.tokens[t];
    if (token < 0)
        token = p.pool[-1 - token];
    const u16 *from = (const u16 *)p.table + (i64)token * HIDDEN;
    u16 *to = p.y + (i64)t * HIDDEN;
    for (i32 i = 0; i < HIDDEN; i++)
        to[i] = SCALED ? f32_bf16(bf16_f32(from[i]) * p.scale) : from[i];
}

LAB_LAUNCH(embed_params)
{
    launch.grid = (p.n_tokens + 127) / 128;
}
