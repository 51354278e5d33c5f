// From a block's logits to its tokens' experts: what moe_route.cu and moe_route_tiles.cu share. Needs EXPERTS, K_USED,
// NORMALISE, SIGMOID, GROUPS and GROUPS_USED.
#include "moe_choose.cuh"
#include "moe_params.h"

constexpr int kKeys = (EXPERTS + 31) / 32;

// The lane's best expert of [begin, end) by its keys.
INLINE MoeBest lane_best(const u32 (&key)[kKeys], int lane, int begin, int end)
{
    MoeBest mine = {0, EXPERTS};
#pragma unroll
    for (int i = 0; i < kKeys; i++) {
        int e = lane + 32 * i;
        if (e >= begin && e < end && key[i] > mine.key)
            mine = {key[i], e};
    }
    return mine;
}

// Makes the keys of all experts outside of the best groups that of -infinity. A group counts as much as the sum of its
// two best experts; lane g keeps group g's.
INLINE void drop_groups(u32 (&key)[kKeys], int lane)
{
    constexpr int kGroups = GROUPS > 0 ? GROUPS : 1, kSize = EXPERTS / kGroups;
    u32 group = 0;
#pragma unroll 1
    for (int g = 0; g < kGroups; g++) {
        MoeBest best = moe_best(lane_best(key, lane, g * kSize, (g + 1) * kSize));
        u32 second = 0;
#pragma unroll
        for (int i = 0; i < kKeys; i++) {
            int e = lane + 32 * i;
            if (e / kSize == g && e < EXPERTS && e != best.expert)
                second = max(second, key[i]);
        }
        second = __reduce_max_sync(~0u, second);
        if (lane == g)
            group = moe_key(moe_logit(best.key) + moe_logit(second));
    }
    u32 kept = 0;
#pragma unroll 1
    for (int k = 0; k < GROUPS_USED; k++) {
        MoeBest best = moe_best({group, lane < kGroups ? lane : EXPERTS});
        kept |= 1u << best.expert;
        if (lane == best.expert)
            group = 0;
    }
#pragma unroll
    for (int i = 0; i < kKeys; i++) {
        int e = lane + 32 * i;
        if (e < EXPERTS && !(kept >> (e / kSize) & 1))
            key[i] = moe_key(-kInfinity);
    }
}

// A warp's choice for one token. Lane l looks at the experts l, l + 32 ...; lane k keeps the k-th choice. v becomes
// what an expert's weight is made of: exponentials, or sigmoids.
INLINE void choose(const moe_route_params &p, i32 token, int lane)
{
    const float *logit = p.logits + (i64)token * EXPERTS;
    float v[kKeys], total = 0.f, chosen = SIGMOID ? 1e-20f : 0.f, share = 0.f;
    u32 key[kKeys], top = 0;
    i32 expert = 0;
#pragma unroll
    for (int i = 0; i < kKeys; i++) {
        bool inside = lane + 32 * i < EXPERTS;
        v[i] = inside ? logit[lane + 32 * i] : -kInfinity;
        if constexpr (SIGMOID) {
            v[i] = 1.f / (1.f + __expf(-v[i]));
            key[i] = inside ? moe_key(v[i] + (p.choice ? p.choice[lane + 32 * i] : 0.f)) : 0;
        } else {
            key[i] = inside ? moe_key(v[i]) : 0;
        }
        top = max(top, key[i]);
    }
    float most = moe_logit(__reduce_max_sync(~0u, top));
    if constexpr (!SIGMOID) {
#pragma unroll
        for (int i = 0; i < kKeys; i++)
            total += lane + 32 * i < EXPERTS ? __expf(v[i] - most) : 0.f;
        total = warp_sum(total);
    }
    if constexpr (GROUPS > 0)
        drop_groups(key, lane);
#pragma unroll 1
    for (int k = 0; k < K_USED; k++) {
        MoeBest best = moe_best(lane_best(key, lane, 0, EXPERTS));
        float own = 0.f;
#pragma unroll
        for (int i = 0; i < kKeys; i++)
            if (lane + 32 * i == best.expert) {
                key[i] = 0;
                own = v[i];
            }
        float weight = SIGMOID ? __shfl_sync(~0u, own, best.expert % 32) : __expf(moe_logit(best.key) - most) / total;
        chosen += weight;
        if (lane == k) {
            expert = best.expert;
            share = weight;
        }
    }
    if (lane < K_USED) {
        bool own = (u32)(expert - p.first) < (u32)p.mine;
        share = (NORMALISE ? share / chosen : share) * p.scale * (p.by_expert ? p.by_expert[expert] : 1.f);
        p.expert[(i64)token * K_USED + lane] = own ? expert - p.first : -1;
        p.weight[(i64)token * K_USED + lane] = own ? share : 0.f;
    }
}

// The CTA's choices for tokens [begin, end), of which those from `real` on are padding.
INLINE void choose_all(const moe_route_params &p, i32 begin, i32 end, i32 real, int warps)
{
    int lane = threadIdx.x % 32;
    for (i32 t = begin + threadIdx.x / 32; t < end; t += warps) {
        if (t < real) {
            choose(p, t, lane);
        } else if (lane < K_USED) {
            p.expert[(i64)t * K_USED + lane] = -1;
            p.weight[(i64)t * K_USED + lane] = 0.f;
        }
    }
}
