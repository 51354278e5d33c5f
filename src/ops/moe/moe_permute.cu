// out[t, :] = x[t, :] with the columns in the order that the weights of the experts' first product want
// (moe_order.cuh).
//
// x [tokens, K] bf16, out [tokens, K] bf16. Grid: pieces of THREADS groups of 32 columns, one a thread.
// Bytes: 4 a column; bound by the latency of a launch, or by L2.
// Template: K (a multiple of 32), ORDER, THREADS.
#include "moe_order.cuh"
#include "moe_params.h"

KERNEL __launch_bounds__(THREADS) moe_permute(const __grid_constant__ moe_permute_params p)
{
    constexpr int kChunks = K / 32;
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    pdl_go();
    pdl_wait();
    if (i >= (i64)p.n_tokens * kChunks)
        return;
    const u16 *from = p.x + i / kChunks * p.x_stride + i % kChunks * 32;
    u16 *out = p.out + i * 32;
    uint4 v[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        v[n] = load16(from + n * 8);
    const u32(&pair)[16] = (const u32(&)[16])v;
#pragma unroll
    for (int n = 0; n < 4; n++)
        store16(out + n * 8, make_uint4(pair[moe_order_pair<ORDER>(n, 0)], pair[moe_order_pair<ORDER>(n, 1)],
                                        pair[moe_order_pair<ORDER>(n, 2)], pair[moe_order_pair<ORDER>(n, 3)]));
}
