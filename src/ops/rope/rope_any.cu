// rope for heads and rows of any length, with the per-head RMSNorm of q and of k before it (NORM_AFTER: after it) if a
// weight is given. It works in place.
//
// q [tokens, HEADS * HEAD_DIM], k [tokens, KV_HEADS * HEAD_DIM] bf16 slices, aligned to 2 bytes only; cos_sin
// [context, DIMS] fp32: row p = cos(0 .. DIMS/2) | sin(0 .. DIMS/2). Grid: one warp for each head of a token, 128
// threads per CTA. A lane reads and writes the same elements, and the norm's sum is complete before any lane
// writes, so no copy of the head is kept. Bytes: 6 * (HEADS + KV_HEADS) * HEAD_DIM per token.
// Template: HEADS, KV_HEADS, HEAD_DIM, DIMS, INTERLEAVED, PLUS_ONE, NORM_AFTER.
#include "rope_any_params.h"

KERNEL __launch_bounds__(128) rope_any(const __grid_constant__ rope_any_params p)
{
    constexpr u32 kHeads = HEADS + KV_HEADS;
    constexpr int kHalf = DIMS / 2, kPairs = (kHalf + 31) / 32; // of a head, and of a lane
    u32 i = blockIdx.x * 4 + threadIdx.x / 32, t = i / kHeads, h = i % kHeads;
    int lane = threadIdx.x % 32;
    pdl_go();
    bool there = t < (u32)p.n_tokens;
    // no kernel of a step writes these, so they are loaded before the turn
    const float *cos_sin = (h < HEADS ? p.q_cos_sin : p.cos_sin) + (i64)(there ? p.position[t] : 0) * DIMS;
    float cosine[kPairs], sine[kPairs];
#pragma unroll
    for (int n = 0; n < kPairs; n++) {
        int c = min(n * 32 + lane, kHalf - 1);
        cosine[n] = cos_sin[c], sine[n] = cos_sin[kHalf + c];
    }
    pdl_wait();
    if (!there)
        return;
    u16 *x = h < HEADS ? p.q + (i64)t * p.q_stride + h * HEAD_DIM
                       : p.k + (i64)t * p.k_stride + (h - HEADS) * HEAD_DIM;
    const float *norm = h < HEADS ? p.q_norm : p.k_norm;
    float scale = 1.f;
    auto weighed = [&](float v, int c) { return v * scale * (norm[c] + (float)PLUS_ONE); };
    auto element = [&](int c) {
        float v = bf16_f32(x[c]);
        return norm && !NORM_AFTER ? weighed(v, c) : v;
    };
    auto rotated = [&](int n, int ia, int ib, float &a, float &b) {
        float from_a = element(ia), from_b = element(ib);
        a = from_a * cosine[n] - from_b * sine[n];
        b = from_a * sine[n] + from_b * cosine[n];
    };
    auto first_of = [](int c) { return INTERLEAVED ? 2 * c : c; };
    auto second_of = [](int c) { return INTERLEAVED ? 2 * c + 1 : c + kHalf; };
    if (norm) {
        float sum = 0.f, a, b;
#pragma unroll
        for (int n = 0; n < kPairs; n++) {
            int c = n * 32 + lane;
            if (c >= kHalf || !NORM_AFTER)
                continue;
            rotated(n, first_of(c), second_of(c), a, b);
            sum = fmaf(a, a, fmaf(b, b, sum));
        }
        for (int c = lane + (NORM_AFTER ? 2 * kHalf : 0); c < HEAD_DIM; c += 32)
            sum = fmaf(bf16_f32(x[c]), bf16_f32(x[c]), sum);
        scale = rsqrtf(warp_sum(sum) / HEAD_DIM + p.eps);
        __syncwarp(); // all lanes have read what other lanes write next; a shuffle alone does not order memory
    }
    auto put = [&](int c, float v) { x[c] = f32_bf16(norm && NORM_AFTER ? weighed(v, c) : v); };
#pragma unroll
    for (int n = 0; n < kPairs; n++) {
        int c = n * 32 + lane;
        float a, b;
        if (c >= kHalf)
            continue;
        rotated(n, first_of(c), second_of(c), a, b);
        put(first_of(c), a);
        put(second_of(c), b);
    }
    for (int c = 2 * kHalf + lane; norm && c < HEAD_DIM; c += 32) // without a norm they stay as they are
        put(c, element(c));
}
