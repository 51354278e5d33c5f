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
    bool there[K_USED];
    float weight[K_USED];
#pragma unroll
    for (int k = 0; k < K_USED; k++) { // from moe_route, which ended before the kernel in front of this one began
        there[k] = p.expert[t * K_USED + k] >= 0;
        weight[k] = p.weight[t * K_USED + k];
    }
    pdl_wait();
    if (c >= HIDDEN)
        return;
    const u16 *from = p.part + t * K_USED * HIDDEN + c;
    u16 *y = p.y + t * p.y_stride + c;
    uint4 part[K_USED];
#pragma unroll
    for (int k = 0; k < K_USED; k++)
        part[k] = there[k] ? load16(from + k * HIDDEN) : make_uint4(0, 0, 0, 0);
    f32x8 sum = {}, before = {};
    if constexpr (ACCUMULATE)
        before = unpack8(load16(y));
#pragma unroll
    for (int k = 0; k < K_USED; k++) {
        f32x8 v = unpack8(part[k]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum.v[i] += there[k] ? weight[k] * v.v[i] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < 8 && ACCUMULATE; i++)
        sum.v[i] += before.v[i];
    store16(y, pack8(sum));
}
