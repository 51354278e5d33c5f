// Rotary embedding of q and k in place, for interleaved pairs (2 i, 2 i + 1), by 16-byte vectors
//
// A variant of rope: rope.cu has vectors for half-split pairs (i, i + DIMS / 2) alone, and takes interleaved ones
// element by element. Here a lane holds 8 neighbouring elements, which are 4 whole pairs, with 4 cosines and 4 sines;
// in the half-split form it holds 8 elements of each half, with 8 of each.
//
// q [tokens, HEADS * HEAD_DIM], k [tokens, KV_HEADS * HEAD_DIM] bf16 slices; cos_sin [context, DIMS] fp32: row p =
// cos(0 .. DIMS/2) | sin(0 .. DIMS/2). Grid: one thread for each vector that is rotated, 128 threads per CTA. Elements
// from DIMS on stay as they are. Bytes: 4 * (HEADS + KV_HEADS) * DIMS per token; memory-bound for many tokens.
// Template: HEADS, KV_HEADS, HEAD_DIM, DIMS (both multiples of 8).
#include "rope_pairs_params.h"

KERNEL __launch_bounds__(128) rope_pairs(const __grid_constant__ rope_pairs_params p)
{
    constexpr u32 kPerHead = DIMS / 8, kPerToken = (HEADS + KV_HEADS) * kPerHead;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kPerToken, r = i % kPerToken;
    u32 head = r / kPerHead, c = r % kPerHead;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    u16 *x = head < HEADS ? p.q + (i64)t * p.q_stride + head * HEAD_DIM
                          : p.k + (i64)t * p.k_stride + (head - HEADS) * HEAD_DIM;
    const float *row = p.cos_sin + (i64)p.position[t] * DIMS;
    float4 a = ((const float4 *)row)[c], b = ((const float4 *)(row + DIMS / 2))[c];
    float cosine[4] = {a.x, a.y, a.z, a.w}, sine[4] = {b.x, b.y, b.z, b.w};
    f32x8 v = unpack8(load16(x + c * 8)), y;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float even = v.v[2 * n], odd = v.v[2 * n + 1];
        y.v[2 * n] = even * cosine[n] - odd * sine[n];
        y.v[2 * n + 1] = even * sine[n] + odd * cosine[n];
    }
    store16(x + c * 8, pack8(y));
}
