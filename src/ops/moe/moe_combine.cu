// y[t, i] (+)= sum_j weight[t, j] * part[t, j, i] over the K_USED experts of a token, in rising j. Slots of no
// expert (-1: all of a padding token, and those of other ranks' experts) have no parts and add nothing.
//
// part [tokens, K_USED, HIDDEN] bf16, expert and weight [tokens, K_USED], y [tokens, HIDDEN] bf16. Grid: x = tokens,
// y = pieces of 8 * THREADS elements, eight a thread. Bytes: 2 * K_USED * HIDDEN a token and y; memory-bound.
// Template: HIDDEN (a multiple of 8), K_USED, THREADS, ACCUMULATE.
#include "moe_params.h"

KERNEL __launch_bounds__(THREADS) moe_combine(const __grid_constant__ moe_combine_params p)
{
    i32 c = (blockIdx.y * THREADS + threadIdx.x) * 8;
    i64 t = blockIdx.x;
    pdl_go();
    pdl_wait();
    if (c >= HIDDEN)
        return;
    const u16 *from = p.part + t * K_USED * HIDDEN + c;
    u16 *y = p.y + t * p.y_stride + c;
    f32x8 sum = {};
#pragma unroll
    for (int k = 0; k < K_USED; k++)
        if (p.expert[t * K_USED + k] >= 0) {
            f32x8 v = unpack8(load16(from + k * HIDDEN));
            float weight = p.weight[t * K_USED + k];
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum.v[i] += weight * v.v[i];
        }
    if constexpr (ACCUMULATE) {
        f32x8 before = unpack8(load16(y));
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum.v[i] += before.v[i];
    }
    store16(y, pack8(sum));
}
