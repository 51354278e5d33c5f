// out[i, :] = x[order[i] / K_USED, :]: x's rows in the order of the sorted slots, for moe_gemm_sm90.cu, which then
// brings them by TMA.
//
// x [tokens, K] bf16, out [slots, K] bf16. Grid: a warp for each row of out; those behind the last tile stay as they
// are. Bytes: 2 K a slot written, and x, from L2; memory-bound.
// Template: K (a multiple of 8), K_USED, THREADS.
#include "moe_params.h"

constexpr int kVectors = K / 8, kBatch = 8; // vectors of a lane under way

KERNEL __launch_bounds__(THREADS) moe_gather(const __grid_constant__ moe_gather_params p)
{
    int lane = threadIdx.x % 32;
    i32 i = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    pdl_go();
    pdl_wait();
    i32 n_tiles = *p.n_tiles;
    if (n_tiles == 0)
        return;
    uint4 last = load16(p.tile + n_tiles - 1);
    if (i >= (i32)(last.y + last.z))
        return;
    const u16 *from = p.x + (i64)(p.order[i] / K_USED) * p.x_stride;
    u16 *to = p.out + (i64)i * K;
#pragma unroll
    for (int first = 0; first < kVectors; first += kBatch * 32) {
        uint4 v[kBatch];
#pragma unroll
        for (int n = 0; n < kBatch; n++)
            if (first + n * 32 + lane < kVectors)
                v[n] = load16(from + (first + n * 32 + lane) * 8);
#pragma unroll
        for (int n = 0; n < kBatch; n++)
            if (first + n * 32 + lane < kVectors)
                store16(to + (first + n * 32 + lane) * 8, v[n]);
    }
}
