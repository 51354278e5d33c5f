// y[t, i] = act(x[t, i]) * x[t, n + i]     x [tokens, 2 n] bf16, y [tokens, n] bf16
// y[t, i] = act(x[t, i]) * up[t, i]        APART: x and up [tokens, n]; y may be x
//
// Grid: one thread for each vector of VEC outputs. Bytes: 6 n per token; bound by memory.
// Template: N, VEC (8 or 1), GELU, APART.
#include "silu_mul_params.h"

INLINE float activate(float x) { return GELU ? gelu_tanh(x) : silu(x); }

KERNEL __launch_bounds__(256) silu_mul(const __grid_constant__ silu_mul_params p)
{
    constexpr u32 kVectors = N / VEC;
    u32 i = blockIdx.x * 256 + threadIdx.x, t = i / kVectors, c = i % kVectors;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    const u16 *x = p.x + (i64)t * p.x_stride + c * VEC;
    const u16 *up = APART ? p.up + (i64)t * p.up_stride + c * VEC : x + N;
    u16 *y = p.y + (i64)t * p.y_stride + c * VEC;
    if constexpr (VEC == 8) {
        f32x8 g = unpack8(load16(x)), u = unpack8(load16(up));
#pragma unroll
        for (int k = 0; k < 8; k++)
            g.v[k] = activate(g.v[k]) * u.v[k];
        store16(y, pack8(g));
    } else {
        *y = f32_bf16(activate(bf16_f32(*x)) * bf16_f32(*up));
    }
}
