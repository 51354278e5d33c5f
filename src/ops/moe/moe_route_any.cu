// moe_route for rows of any length and any number of experts to use: p = softmax(x Wr^T) in fp32, the K_USED
// largest (ties: lower index), in falling order, with p or p / (sum of the chosen) as weights.
//
// x [tokens, HIDDEN] bf16, aligned to 2 bytes only, router [EXPERTS, HIDDEN] fp32, expert [tokens, K_USED] int32,
// weight likewise fp32. Grid: one CTA of 8 warps a token; warp w takes the experts w, w + 8, ...; then warp 0
// chooses. Bytes: the router once a token from L2.
// Template: HIDDEN, EXPERTS, K_USED (EXPERTS + K_USED up to 8192), NORMALISE.
#include "moe_choose.cuh"
#include "moe_params.h"

KERNEL __launch_bounds__(256) moe_route_any(const __grid_constant__ moe_route_params p)
{
    __shared__ float logit[EXPERTS], chosen[K_USED];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    pdl_go();
    pdl_wait();
    const u16 *x = p.x + (i64)blockIdx.x * p.x_stride;
    for (int e = warp; e < EXPERTS; e += 8) {
        const float *w = p.router + (i64)e * HIDDEN;
        float sum = 0.f;
        for (int i = lane; i < HIDDEN; i += 32)
            sum = fmaf(bf16_f32(x[i]), w[i], sum);
        sum = warp_sum(sum);
        if (lane == 0)
            logit[e] = sum;
    }
    __syncthreads();
    if (warp)
        return;
    MoeSoftmax softmax = moe_softmax(logit, lane);
    float chosen_sum = 0.f;
    for (int k = 0; k < K_USED; k++) {
        MoeBest best = moe_best(logit, lane);
        float share = __expf(best.logit - softmax.top) / softmax.total;
        chosen_sum += share;
        __syncwarp();
        if (lane == 0) {
            logit[best.at] = -kInfinity;
            chosen[k] = share;
            p.expert[(i64)blockIdx.x * K_USED + k] = best.at;
        }
        __syncwarp();
    }
    for (int k = lane; k < K_USED; k += 32)
        p.weight[(i64)blockIdx.x * K_USED + k] = NORMALISE ? chosen[k] / chosen_sum : chosen[k];
}
