// y[t, :] = scale * table[token[t], :]     table [vocab, K] in quantised tiles (ops/linear/quant/linear_quant.h),
// y [tokens, K] bf16. Where a model ties its embedding and its head, both use the same tiles.
//
// Grid: one thread for each token, unit of 128 columns and lane q of a quad; 128 threads per CTA. token[t] < 0: see
// embed.cu. Bytes per token: the row's share of its tile is read (a quad of threads reads 64 of 512 contiguous
// bytes), 2 K are written. Bound by launch latency for all but long prefills.
// Template: BITS, OFFSET, FORM, K, SCALED, PART (as in embed.cu).
#include "quant_tile.cuh"
#include "embed_params.h"

KERNEL __launch_bounds__(128) embed_quant(const __grid_constant__ embed_params p)
{
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / (kUnits * 4), unit = i / 4 % kUnits, q = i % 4;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 token = p.tokens[t];
    if (token < 0)
        token = p.pool[-1 - token];
    bool mine = true;
    if constexpr (PART) {
        token -= p.first;
        mine = (u32)token < (u32)p.rows;
        token = mine ? token : 0;
    }
    Unit u;
    load_unit((const u8 *)p.table + token / 8 * kTileBytes, unit, token % 8 * 4 + q, u);
    u16 *y = p.y + (i64)t * K;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        if (kTail && c >= kTail && unit == kUnits - 1)
            break;
        float v[8];
        values_of(u, c, v);
#pragma unroll
        for (int k = 0; k < 8 && SCALED; k++)
            v[k] *= p.scale;
#pragma unroll
        for (int k = 0; k < 8 && PART; k++)
            v[k] = mine ? v[k] : 0;
        store_values(y, unit * 4 + c, q, v);
    }
}
