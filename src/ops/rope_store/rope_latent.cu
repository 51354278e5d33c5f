// rope of q's heads, and of a latent's row, which is normalised behind its rotated dimensions and stored:
//
//   q[t, h, 0 .. DIMS)              rotated in place
//   pool[page, slot % PAGE, :] = ( rotated k[t, 0 .. DIMS) | norm(k[t, DIMS .. HEAD_DIM)) )     NORM 0: as they are
//
// q [tokens, HEADS * HEAD_DIM], k [tokens, HEAD_DIM], pool [pages, PAGE, HEAD_DIM] bf16, aligned to 2 bytes only;
// weight [HEAD_DIM - DIMS] fp32; cos_sin as in rope_any.cu. Grid: one warp for each head of a token, and one for its
// row; 128 threads a CTA. What no kernel of a step writes is loaded before the turn: positions, slots, tables, weights.
// Bytes: 4 * (HEADS * DIMS + HEAD_DIM) a token; bound by latency.
// Template: HEADS, HEAD_DIM, DIMS, PAGE, INTERLEAVED, NORM.
#include "rope_latent_params.h"

constexpr int kHalf = DIMS / 2, kPairs = (kHalf + 31) / 32; // of a head, and of a lane
constexpr int kRest = HEAD_DIM - DIMS, kPer = (kRest + 31) / 32;

struct Turn { // a lane's pairs
    float cosine[kPairs > 0 ? kPairs : 1], sine[kPairs > 0 ? kPairs : 1];
};

INLINE int first_of(int c) { return INTERLEAVED ? 2 * c : c; }
INLINE int second_of(int c) { return INTERLEAVED ? 2 * c + 1 : c + kHalf; }

INLINE void rotate(const Turn &turn, const u16 *from, u16 *to, int lane)
{
#pragma unroll
    for (int n = 0; n < kPairs; n++) {
        int c = n * 32 + lane;
        if (c >= kHalf)
            continue;
        float a = bf16_f32(from[first_of(c)]), b = bf16_f32(from[second_of(c)]);
        to[first_of(c)] = f32_bf16(a * turn.cosine[n] - b * turn.sine[n]);
        to[second_of(c)] = f32_bf16(a * turn.sine[n] + b * turn.cosine[n]);
    }
}

INLINE void norm_rest(const u16 *from, u16 *to, const float *w, float eps, int lane)
{
    float v[kPer], sum = 0.f;
#pragma unroll
    for (int n = 0; n < kPer; n++) {
        int c = n * 32 + lane;
        v[n] = c < kRest ? bf16_f32(from[DIMS + c]) : 0.f;
        sum = fmaf(v[n], v[n], sum);
    }
    float scale = NORM ? rsqrtf(warp_sum(sum) / kRest + eps) : 1.f;
#pragma unroll
    for (int n = 0; n < kPer; n++)
        if (n * 32 + lane < kRest)
            to[DIMS + n * 32 + lane] = f32_bf16(NORM ? v[n] * scale * w[n] : v[n]);
}

KERNEL __launch_bounds__(128) rope_latent(const __grid_constant__ rope_latent_params p)
{
    constexpr u32 kItems = HEADS + 1;
    u32 i = blockIdx.x * 4 + threadIdx.x / 32, t = i / kItems, h = i % kItems;
    int lane = threadIdx.x % 32;
    bool there = t < (u32)p.n_tokens, row = h == HEADS;
    pdl_go();
    const float *cos_sin = (row ? p.cos_sin : p.q_cos_sin) + (i64)(there ? p.position[t] : 0) * DIMS;
    i32 slot = there ? p.slot[t] : 0;
    Turn turn;
    float w[kPer];
#pragma unroll
    for (int n = 0; n < kPairs; n++) {
        int c = min(n * 32 + lane, kHalf - 1);
        turn.cosine[n] = cos_sin[c], turn.sine[n] = cos_sin[kHalf + c];
    }
#pragma unroll
    for (int n = 0; n < kPer; n++)
        w[n] = NORM && row && n * 32 + lane < kRest ? p.weight[n * 32 + lane] : 0.f;
    pdl_wait();
    if (!there)
        return;
    if (!row) {
        u16 *q = p.q + (i64)t * p.q_stride + h * HEAD_DIM;
        rotate(turn, q, q, lane);
        return;
    }
    STORES_TO_PADDING_PAGE(slot < PAGE);
    const u16 *k = p.k + (i64)t * p.k_stride;
    u16 *to = p.pool + (i64)slot * HEAD_DIM; // one head: slots of all pages are rows one behind the other
    rotate(turn, k, to, lane);
    norm_rest(k, to, w, p.eps, lane);
}
