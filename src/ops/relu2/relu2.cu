// y[t, i] = max(x[t, i], 0)^2              x, y [tokens, N] bf16
//
// Grid: one thread for each vector of VEC outputs. Bytes: 4 N a token; bound by memory. Template: N, VEC (8 or 1).
#include "relu2_params.h"

INLINE float squared(float v)
{
    float r = fmaxf(v, 0.f);
    return r * r;
}

KERNEL __launch_bounds__(256) relu2(const __grid_constant__ relu2_params p)
{
    constexpr u32 kVectors = N / VEC;
    u32 i = blockIdx.x * 256 + threadIdx.x, t = i / kVectors, c = i % kVectors;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    const u16 *x = p.x + (i64)t * p.x_stride + c * VEC;
    u16 *y = p.y + (i64)t * p.y_stride + c * VEC;
    if constexpr (VEC == 8) {
        f32x8 v = unpack8(load16(x));
#pragma unroll
        for (int k = 0; k < 8; k++)
            v.v[k] = squared(v.v[k]);
        store16(y, pack8(v));
    } else {
        *y = f32_bf16(squared(bf16_f32(*x)));
    }
}
