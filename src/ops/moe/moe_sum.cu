// y[t, i] (+)= sum_j part[t, j, i] over the K_USED experts of a token, in rising j.
//
// part [tokens, K_USED, HIDDEN] fp32, y [tokens, HIDDEN] bf16. Grid: a thread four elements, 256 threads a
// CTA. Bytes: 4 * K_USED * HIDDEN a token and y; memory-bound.
// Template: HIDDEN (a multiple of 4), K_USED, ACCUMULATE.
#include "moe_params.h"

KERNEL __launch_bounds__(256, 1) moe_sum(const __grid_constant__ moe_sum_params p)
{
    u32 i = blockIdx.x * 256 + threadIdx.x, t = i / (HIDDEN / 4), c = i % (HIDDEN / 4) * 4;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    const float *from = p.part + (i64)t * K_USED * HIDDEN + c;
    u16 *y = p.y + (i64)t * p.y_stride + c;
    float sum[4] = {};
#pragma unroll
    for (int k = 0; k < K_USED; k++) {
        float4 v = *(const float4 *)(from + k * HIDDEN);
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        y[k] = f32_bf16(sum[k] + (ACCUMULATE ? bf16_f32(y[k]) : 0.f));
}
