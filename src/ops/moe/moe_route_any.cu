// moe_route for rows of any length and any number of experts to use: p = softmax(x Wr^T) in fp32, the K_USED largest
// (ties: lower index), in falling order, with p or p / (sum of the chosen) as weights. Padding tokens get expert -1
// and weight 0.
//
// x [tokens, HIDDEN] bf16, aligned to 2 bytes only, router [EXPERTS, HIDDEN] fp32, expert [tokens, K_USED] int32,
// weight likewise fp32. Grid: one CTA of 8 warps a token; warp w takes the experts w, w + 8, ...; then warp 0
// chooses. Bytes: the router once a token from L2.
// Template: HIDDEN, EXPERTS, K_USED (EXPERTS + K_USED up to 8192), NORMALISE.
#include "moe_choose.cuh"
#include "moe_params.h"

KERNEL __launch_bounds__(256) moe_route_any(const __grid_constant__ moe_route_params p)
{
    __shared__ float logit[EXPERTS], chosen[K_USED]; // a logit, and once the sum is known its key
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 token = blockIdx.x;
    pdl_go();
    pdl_wait();
    i32 *expert = p.expert + token * K_USED;
    float *weight = p.weight + token * K_USED;
    if (token >= *p.n_real) {
        for (int k = threadIdx.x; k < K_USED; k += 256) {
            expert[k] = -1;
            weight[k] = 0.f;
        }
        return;
    }
    const u16 *x = p.x + token * p.x_stride;
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
    u32 top = 0;
    for (int e = lane; e < EXPERTS; e += 32)
        top = max(top, moe_key(logit[e]));
    float most = moe_logit(__reduce_max_sync(~0u, top)), total = 0.f, sum = 0.f;
    for (int e = lane; e < EXPERTS; e += 32) { // each lane's own experts, here and below
        total += __expf(logit[e] - most);
        logit[e] = __uint_as_float(moe_key(logit[e]));
    }
    total = warp_sum(total);
    for (int k = 0; k < K_USED; k++) {
        MoeBest mine = {0, EXPERTS};
        for (int e = lane; e < EXPERTS; e += 32)
            if (__float_as_uint(logit[e]) > mine.key)
                mine = {__float_as_uint(logit[e]), e};
        MoeBest best = moe_best(mine);
        float share = __expf(moe_logit(best.key) - most) / total;
        sum += share;
        if (lane == best.expert % 32)
            logit[best.expert] = 0.f;
        if (lane == 0) {
            chosen[k] = share;
            expert[k] = best.expert;
        }
    }
    __syncwarp();
    for (int k = lane; k < K_USED; k += 32)
        weight[k] = NORMALISE ? chosen[k] / sum : chosen[k];
}
