// y[t, i] (+)= sum_j part[t, j, i] over the K_USED experts of a token, in rising j. Slots of
// no expert (-1: all of a padding token, and those of other ranks' experts) have no parts and add nothing.
//
// part [tokens, K_USED, HIDDEN] fp32, expert [tokens, K_USED], y [tokens, HIDDEN] bf16. Grid: x = tokens, y = pieces of
// 4 * THREADS elements, four a thread. Bytes: 4 * K_USED * HIDDEN a token and y; memory-bound.
// Template: HIDDEN (a multiple of 4), K_USED, THREADS, ACCUMULATE.
#include "moe_params.h"

KERNEL __launch_bounds__(THREADS) moe_sum(const __grid_constant__ moe_sum_params p)
{
    i32 c = (blockIdx.y * THREADS + threadIdx.x) * 4;
    i64 t = blockIdx.x;
    pdl_go();
    pdl_wait();
    if (c >= HIDDEN)
        return;
    const float *from = p.part + t * K_USED * HIDDEN + c;
    u16 *y = p.y + t * p.y_stride + c;
    float sum[4] = {};
#pragma unroll
    for (int k = 0; k < K_USED; k++)
        if (p.expert[t * K_USED + k] >= 0) {
            float4 v = *(const float4 *)(from + k * HIDDEN);
            sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
        }
#pragma unroll
    for (int k = 0; k < 4; k++)
        y[k] = f32_bf16(sum[k] + (ACCUMULATE ? bf16_f32(y[k]) : 0.f));
}
