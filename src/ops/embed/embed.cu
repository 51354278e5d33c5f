// y[t, :] = scale * table[token[t], :]     table [vocab, hidden] bf16, y [tokens, hidden] bf16
//
// Grid: one thread for each vector of VEC elements, 128 threads per CTA; neighbouring threads have
// neighbouring addresses. token[t] < 0 means "the token that slot -1 - token[t] of the pool got in the
// last step".
// Bytes: 2 * hidden * 2 per token; bound by memory from about 1000 tokens on, by launch latency below.
// Template: HIDDEN, VEC (8, or 1 where hidden is not a multiple of 8), SCALED, PART (the table is a rank's part of the
// vocabulary: ids of other parts give zeros).
#include "embed_params.h"

KERNEL __launch_bounds__(128) embed(const __grid_constant__ embed_params p)
{
    constexpr u32 kVectors = HIDDEN / VEC;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kVectors, c = i % kVectors;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 token = p.tokens[t];
    if (token < 0)
        token = p.pool[-1 - token];
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
    if constexpr (VEC == 8) {
        uint4 v = load_weights16(from);
        if constexpr (SCALED) {
            f32x8 f = unpack8(v);
#pragma unroll
            for (int k = 0; k < 8; k++)
                f.v[k] *= p.scale;
            v = pack8(f);
        }
        store16(to, v);
    } else {
        *to = SCALED ? f32_bf16(bf16_f32(*from) * p.scale) : *from;
    }
}
