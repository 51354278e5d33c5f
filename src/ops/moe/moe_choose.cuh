// A router's choice, by one warp that has all logits of a token in shared memory: what moe_route.cu and
// moe_route_any.cu share. Needs EXPERTS.

// p of an expert = exp(its logit - top) / total.
struct MoeSoftmax {
    float top, total;
};
INLINE MoeSoftmax moe_softmax(const float *logit, int lane)
{
    float top = -kInfinity, total = 0.f;
    for (int e = lane; e < EXPERTS; e += 32)
        top = fmaxf(top, logit[e]);
#pragma unroll
    for (int d = 16; d; d >>= 1)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    for (int e = lane; e < EXPERTS; e += 32)
        total += __expf(logit[e] - top);
    return {top, warp_sum(total)};
}

// The largest logit, ties: the lower index, in every lane.
struct MoeBest {
    float logit;
    i32 at;
};
INLINE MoeBest moe_best(const float *logit, int lane)
{
    float best = -kInfinity;
    i32 at = EXPERTS;
    for (int e = lane; e < EXPERTS; e += 32)
        if (logit[e] > best) {
            best = logit[e];
            at = e;
        }
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_xor_sync(~0u, best, d);
        i32 there = __shfl_xor_sync(~0u, at, d);
        if (other > best || (other == best && there < at)) {
            best = other;
            at = there;
        }
    }
    return {best, min(at, EXPERTS - 1)}; // min: only where logits are not numbers
}
