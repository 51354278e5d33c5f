// y[t, :] = x[r(t), :] * w / rms(x[r(t), :])                           ADD=0
// s = x + residual; residual <- bf16(s); y = s * w / rms(s)            ADD=1 (s unrounded in the
// norm)
//
// x, residual, y [tokens, HIDDEN] bf16, w [HIDDEN] fp32. Grid: one CTA a row; each thread keeps its
// PER vectors of VEC elements in registers, so a row is read once. fp32 sums: warp shuffle, then
// one value a warp through shared memory. Bytes: 4 * hidden a row (ADD: 8); bound by memory for
// many rows, by latency below about 2000.
// Template: HIDDEN, VEC (8 or 1), THREADS, ADD, ROWS (a row index is given), PLUS_ONE.

struct RmsnormParams {
    const u16 *x;
    const i32 *row;
    const float *weight;
    u16 *residual, *y;
    i32 x_stride, y_stride, residual_stride;
    float eps;
};

KERNEL __launch_bounds__(THREADS) rmsnorm(const __grid_constant__ RmsnormParams p)
{
    constexpr int kVectors = HIDDEN / VEC, kPer = (kVectors + THREADS - 1) / THREADS,
                  kWarps = THREADS / 32;
    __shared__ float part[kWarps];
    u32 tid = threadIdx.x, t = blockIdx.x;
    float w[kPer][VEC], s[kPer][VEC];
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * THREADS + tid) * VEC;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            w[i][k] = at < HIDDEN ? __ldg(p.weight + at + k) + (float)PLUS_ONE : 0.f;
    }
    pdl_go();
    pdl_wait();
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : (i32)t) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride, *residual = p.residual + (i64)t * p.residual_stride;
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * THREADS + tid) * VEC;
        if (at < HIDDEN) {
            if constexpr (VEC == 8) {
                f32x8 v = unpack8(load16(x + at));
                if constexpr (ADD) {
                    f32x8 r = unpack8(load16(residual + at));
#pragma unroll
                    for (int k = 0; k < 8; k++)
                        v.v[k] += r.v[k];
                    store16(residual + at, pack8(v));
                }
#pragma unroll
                for (int k = 0; k < 8; k++)
                    s[i][k] = v.v[k];
            } else {
                s[i][0] = bf16_f32(x[at]);
                if constexpr (ADD) {
                    s[i][0] += bf16_f32(residual[at]);
                    residual[at] = f32_bf16(s[i][0]);
                }
            }
        } else {
#pragma unroll
            for (int k = 0; k < VEC; k++)
                s[i][k] = 0.f;
        }
#pragma unroll
        for (int k = 0; k < VEC; k++)
            sum = fmaf(s[i][k], s[i][k], sum);
    }
    sum = warp_sum(sum);
    if constexpr (kWarps > 1) {
        if (tid % 32 == 0)
            part[tid / 32] = sum;
        __syncthreads();
        sum = 0.f;
#pragma unroll
        for (int i = 0; i < kWarps; i++)
            sum += part[i];
    }
    float scale = rsqrtf(sum / HIDDEN + p.eps);
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * THREADS + tid) * VEC;
        if (at >= HIDDEN)
            continue;
        if constexpr (VEC == 8) {
            f32x8 v;
#pragma unroll
            for (int k = 0; k < 8; k++)
                v.v[k] = s[i][k] * scale * w[i][k];
            store16(y + at, pack8(v));
        } else {
            y[at] = f32_bf16(s[i][0] * scale * w[i][0]);
        }
    }
}
