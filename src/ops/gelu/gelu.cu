// y[t, i] = gelu(x[t, i])                  x, y [tokens, N] bf16
// y[t, i] = gelu(x[t, i]) * x[t, N + i]    GATED: x [tokens, 2 N]
//
// The form with erf, v Phi(v), with Phi(v) = 1 / (1 + 2^(v P(v^2))) and P fitted to the log-odds of Phi: the error is
// at most 3.3e-5, or 3.4e-4 of a result above 0.001, where bf16 rounds by 2e-3. (erff takes 33 instructions a value,
// this 12, with which memory binds and not the instructions.) Beyond |v| = 9 P would turn, and Phi is 0 or 1.
// Grid: one thread for each vector of VEC outputs. Bytes: 4 N a token, GATED 6 N; bound by memory.
// Template: N, VEC (8 or 1), GATED.
#include "gelu_params.h"

INLINE float gelu_erf(float v)
{
    float s = fminf(v * v, 81.f);
    float p = fmaf(s, -1.349082e-6f, 3.866677e-5f); // coefficients times -log2(e)
    p = fmaf(s, p, 7.748337e-4f);
    p = fmaf(s, p, -0.10646299f);
    p = fmaf(s, p, -2.3010546f);
    return __fdividef(v, 1.f + exp2_fast(v * p));
}

KERNEL __launch_bounds__(256) gelu(const __grid_constant__ gelu_params p)
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
        f32x8 g = unpack8(load16(x)), up;
        if constexpr (GATED)
            up = unpack8(load16(x + N));
#pragma unroll
        for (int k = 0; k < 8; k++)
            g.v[k] = gelu_erf(g.v[k]) * (GATED ? up.v[k] : 1.f);
        store16(y, pack8(g));
    } else {
        *y = f32_bf16(gelu_erf(bf16_f32(*x)) * (GATED ? bf16_f32(x[N]) : 1.f));
    }
}
