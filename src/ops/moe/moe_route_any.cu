// moe_route for rows of any length, any number of experts to use and any groups: p = softmax(x Wr^T) in fp32, or
// sigmoid(x Wr^T) with a bias for the choice and groups of experts (moe.h); the K_USED largest (ties: lower index), in
// falling order, with p or p / (sum of the chosen) as weights, times `scale` and the expert's own factor. Padding
// tokens, and choices that are another rank's experts, get expert -1 and weight 0.
//
// x [tokens, HIDDEN] bf16, aligned to 2 bytes only, router [EXPERTS, HIDDEN] fp32, expert [tokens, K_USED] int32,
// weight likewise fp32. Grid: one CTA of 8 warps a token; warp w takes the experts w, w + 8, ...; then warp 0
// chooses. Bytes: the router once a token from L2.
// Template: HIDDEN, EXPERTS, K_USED (shared memory: 8192 floats, moe_any.c), NORMALISE, SIGMOID, GROUPS (0: none),
// GROUPS_USED, BIAS (logits have the expert's bias added).
#include "moe_choose.cuh"
#include "moe_params.h"

// The best of keys [0, n), whose place counts as an expert's; every lane gets it.
INLINE MoeBest best_of(const float *key, int n, int lane)
{
    MoeBest mine = {0, EXPERTS};
    for (int e = lane; e < n; e += 32)
        if (__float_as_uint(key[e]) > mine.key)
            mine = {__float_as_uint(key[e]), e};
    return moe_best(mine);
}

// As best_of(), and the key becomes 0: it is taken.
INLINE MoeBest take_best(float *key, int n, int lane)
{
    MoeBest best = best_of(key, n, lane);
    __syncwarp();
    if (lane == 0)
        key[best.expert] = 0.f;
    __syncwarp();
    return best;
}

// Makes the keys of all experts outside of the best groups that of -infinity.
INLINE void drop_groups(float *key, float *sums, int lane)
{
    constexpr int kGroups = GROUPS > 0 ? GROUPS : 1, kSize = EXPERTS / kGroups;
    for (int g = lane; g < kGroups; g += 32) {
        u32 first = 0, second = 0;
        for (int i = 0; i < kSize; i++) {
            u32 k = __float_as_uint(key[g * kSize + i]);
            second = max(second, min(first, k));
            first = max(first, k);
        }
        sums[g] = __uint_as_float(moe_key(moe_logit(first) + moe_logit(second)));
    }
    __syncwarp();
    for (int i = 0; i < GROUPS_USED; i++)
        take_best(sums, kGroups, lane);
    for (int e = lane; e < EXPERTS; e += 32)
        if (__float_as_uint(sums[e / kSize]) != 0)
            key[e] = __uint_as_float(moe_key(-kInfinity));
    __syncwarp();
}

KERNEL __launch_bounds__(256) moe_route_any(const __grid_constant__ moe_route_params p)
{
    // A logit, and once the sum is known its key; and of sigmoids p.
    __shared__ float logit[EXPERTS], score[SIGMOID ? EXPERTS : 1], group[GROUPS > 0 ? GROUPS : 1], chosen[K_USED];
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
            logit[e] = BIAS ? sum + p.bias[e] : sum;
    }
    __syncthreads();
    if (warp)
        return;
    u32 top = 0;
    for (int e = lane; e < EXPERTS; e += 32)
        top = max(top, moe_key(logit[e]));
    float most = moe_logit(__reduce_max_sync(~0u, top)), total = 0.f, sum = SIGMOID ? 1e-20f : 0.f;
    for (int e = lane; e < EXPERTS; e += 32) { // each lane's own experts
        float by = logit[e];
        if constexpr (SIGMOID) {
            score[e] = 1.f / (1.f + __expf(-by));
            by = score[e] + (p.choice ? p.choice[e] : 0.f);
        } else {
            total += __expf(by - most);
        }
        logit[e] = __uint_as_float(moe_key(by));
    }
    total = warp_sum(total);
    __syncwarp();
    if constexpr (GROUPS > 0)
        drop_groups(logit, group, lane);
    for (int k = 0; k < K_USED; k++) {
        MoeBest best = take_best(logit, EXPERTS, lane);
        float share = SIGMOID ? score[SIGMOID ? best.expert : 0] : __expf(moe_logit(best.key) - most) / total;
        sum += share;
        if (lane == 0) {
            chosen[k] = share;
            expert[k] = best.expert;
        }
    }
    __syncwarp();
    for (int k = lane; k < K_USED; k += 32) {
        i32 e = expert[k];
        bool own = (u32)(e - p.first) < (u32)p.mine;
        float share = (NORMALISE ? chosen[k] / sum : chosen[k]) * p.scale * (p.by_expert ? p.by_expert[e] : 1.f);
        expert[k] = own ? e - p.first : -1;
        weight[k] = own ? share : 0.f;
    }
}
