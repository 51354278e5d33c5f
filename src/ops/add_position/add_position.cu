// x[t, :] += table[position[t] + first, :] + types[type(t), :]     x [tokens, N] bf16, tables [rows, N] fp32
//
// type(t) is 1 from the position where the second text of t's sequence begins, else 0. Grid: one thread for each
// vector of VEC elements. Bytes: 4 N a token, and 8 N of the tables, of L2 where a step's texts have equal positions.
// Template: N, VEC (8 or 1), TYPES (rows of that table: 0, 1 or 2).
#include "add_position_params.h"

KERNEL __launch_bounds__(128) add_position(const __grid_constant__ add_position_params p)
{
    constexpr u32 kVectors = N / VEC;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kVectors, c = i % kVectors * VEC;
    if (t >= (u32)p.n_tokens)
        t = p.n_tokens - 1;
    i32 position = p.position[t], type = 0;
    if (TYPES == 2 && p.second) {
        i32 second = p.second[p.seq_of[t]];
        type = second > 0 && position >= second;
    }
    const float *row = p.table + (i64)(position + p.first) * N + c, *types = p.types + (i64)type * N + c;
    float sum[VEC];
#pragma unroll
    for (int k = 0; k < VEC; k++)
        sum[k] = __ldg(row + k) + (TYPES ? __ldg(types + k) : 0.f);
    pdl_go();
    pdl_wait();
    if (i >= kVectors * (u32)p.n_tokens)
        return;
    u16 *x = p.x + (i64)t * p.x_stride + c;
    if constexpr (VEC == 8) {
        f32x8 v = unpack8(load16(x));
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v.v[k] += sum[k];
        store16(x, pack8(v));
    } else {
        *x = f32_bf16(bf16_f32(*x) + sum[0]);
    }
}
