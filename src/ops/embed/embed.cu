// y[t, :] = scale * table[token[t], :]     table [vocab, hidden] bf16, y [tokens, hidden] bf16
//
// Grid: one thread for each vector of VEC elements, 128 threads per CTA; neighbouring threads have
// neighbouring addresses. With DEEP a warp copies a row, DEEP vectors of a lane at a time: so more bytes
// are under way where rows are many, and the token is read once for all of them.
// token[t] < 0 means "the token that slot -1 - token[t] of the pool got in the last step".
// Bytes: 2 * hidden * 2 per token; bound by memory from about 1000 tokens on, by launch latency below.
// Template: HIDDEN, VEC (8, or 1 where hidden is not a multiple of 8), SCALED, PART (the table is a rank's part of the
// vocabulary: ids of other parts give zeros), DEEP (0; with VEC 8: also the vectors of a lane).
#include "embed_params.h"

INLINE i32 token_of(const embed_params &p, u32 t)
{
    i32 token = p.tokens[t];
    return token < 0 ? p.pool[-1 - token] : token;
}

INLINE uint4 scaled(uint4 v, float scale)
{
    if constexpr (!SCALED)
        return v;
    f32x8 f = unpack8(v);
#pragma unroll
    for (int k = 0; k < 8; k++)
        f.v[k] *= scale;
    return pack8(f);
}

// A warp copies a row.
INLINE void copy_row(const embed_params &p)
{
    constexpr u32 kLoads = DEEP ? DEEP : 1;
    constexpr u32 kVectors = HIDDEN / 8;
    u32 t = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 token = token_of(p, t) - (PART ? p.first : 0);
    bool there = !PART || (u32)token < (u32)p.rows;
    const uint4 *from = (const uint4 *)p.table + (i64)token * kVectors;
    uint4 *to = (uint4 *)p.y + (i64)t * kVectors;
#pragma unroll 1
    for (u32 first = lane; first < kVectors; first += kLoads * 32) {
        uint4 v[kLoads];
#pragma unroll
        for (u32 i = 0; i < kLoads; i++)
            v[i] = there && first + i * 32 < kVectors ? load_weights16(from + first + i * 32) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (u32 i = 0; i < kLoads; i++)
            if (first + i * 32 < kVectors)
                store16(to + first + i * 32, scaled(v[i], p.scale));
    }
}

// A thread copies a vector.
INLINE void copy_vector(const embed_params &p)
{
    constexpr u32 kVectors = HIDDEN / VEC;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kVectors, c = i % kVectors;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 token = token_of(p, t);
    u16 *to = p.y + (i64)t * HIDDEN + c * VEC;
    if constexpr (PART) {
        token -= p.first;
        if ((u32)token >= (u32)p.rows) {
            if constexpr (VEC == 8)
                store16(to, make_uint4(0, 0, 0, 0));
            else
                *to = 0;
            return;
        }
    }
    const u16 *from = (const u16 *)p.table + (i64)token * HIDDEN + c * VEC;
    if constexpr (VEC == 8)
        store16(to, scaled(load_weights16(from), p.scale));
    else
        *to = SCALED ? f32_bf16(bf16_f32(*from) * p.scale) : *from;
}

KERNEL __launch_bounds__(128, DEEP ? 8 : 1) embed(const __grid_constant__ embed_params p)
{
    if constexpr (DEEP)
        copy_row(p);
    else
        copy_vector(p);
}
