// Which experts a token goes to: p = softmax(x Wr^T) in fp32, the K_USED largest (ties: lower index),
// in falling order, with p or p / (sum of the chosen) as weights.
//
// x [tokens, HIDDEN] bf16, router [EXPERTS, HIDDEN] fp32, expert [tokens, K_USED] int32, weight likewise
// fp32. Grid: one CTA of 8 warps a token; warp w takes the experts w, w + 8, ...; then warp 0 chooses.
// Bytes: the router once a token from L2; latency-bound for few tokens.
// Template: HIDDEN (a multiple of 8), EXPERTS (up to 1024), K_USED, NORMALISE.
#include "moe_choose.cuh"
#include "moe_params.h"

KERNEL __launch_bounds__(256, 1) moe_route(const __grid_constant__ moe_route_params p)
{
    __shared__ float logit[EXPERTS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    pdl_go();
    pdl_wait();
    const u16 *x = p.x + (i64)blockIdx.x * p.x_stride;
    for (int e = warp; e < EXPERTS; e += 8) {
        const float *w = p.router + (i64)e * HIDDEN;
        float sum = 0.f;
        for (int i = lane * 8; i < HIDDEN; i += 256) {
            f32x8 v = unpack8(load16(x + i));
            float4 a = *(const float4 *)(w + i), b = *(const float4 *)(w + i + 4);
            sum += v.v[0] * a.x + v.v[1] * a.y + v.v[2] * a.z + v.v[3] * a.w + v.v[4] * b.x +
                   v.v[5] * b.y + v.v[6] * b.z + v.v[7] * b.w;
        }
        sum = warp_sum(sum);
        if (lane == 0)
            logit[e] = sum;
    }
    __syncthreads();
    if (warp)
        return;
    MoeSoftmax softmax = moe_softmax(logit, lane);
    float chosen_sum = 0.f;
    float chosen[K_USED];
    i32 id[K_USED];
#pragma unroll
    for (int k = 0; k < K_USED; k++) {
        MoeBest best = moe_best(logit, lane);
        chosen[k] = __expf(best.logit - softmax.top) / softmax.total;
        chosen_sum += chosen[k];
        id[k] = best.at;
        __syncwarp();
        if (lane == 0)
            logit[best.at] = -kInfinity;
        __syncwarp();
    }
    if (lane == 0)
#pragma unroll
        for (int k = 0; k < K_USED; k++) {
            p.expert[(i64)blockIdx.x * K_USED + k] = id[k];
            p.weight[(i64)blockIdx.x * K_USED + k] = NORMALISE ? chosen[k] / chosen_sum : chosen[k];
        }
}
