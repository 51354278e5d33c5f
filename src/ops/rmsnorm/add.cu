// residual[t, :] = bf16(x[t, :] + residual[t, :])          x, residual [tokens, HIDDEN] bf16
//
// The first launch of add_rmsnorm's variant "add-then-norm"; the second is rmsnorm.cu without ADD.
// Grid: one thread for each vector of VEC elements, 128 threads per CTA. Bytes: 6 * HIDDEN per row.
// Template: HIDDEN, VEC (8, or 1 where rows are not made of 16-byte vectors).
#include "add_params.h"

KERNEL __launch_bounds__(128) add(const __grid_constant__ add_params p)
{
    constexpr u32 kVectors = HIDDEN / VEC;
    i64 i = (i64)blockIdx.x * 128 + threadIdx.x, t = i / kVectors, c = i % kVectors * VEC;
    pdl_go();
    pdl_wait();
    if (t >= p.n_rows)
        return;
    const u16 *x = p.x + t * p.x_stride + c;
    u16 *residual = p.residual + t * p.residual_stride + c;
    if constexpr (VEC == 8) {
        f32x8 a = unpack8(load16(x)), b = unpack8(load16(residual));
#pragma unroll
        for (int k = 0; k < 8; k++)
            a.v[k] += b.v[k];
        store16(residual, pack8(a));
    } else {
        *residual = f32_bf16(bf16_f32(*x) + bf16_f32(*residual));
    }
}
