// RMSNorm, step 3 of 5: 16 bytes a load.
//
// What changes against step 2: a lane loads 8 elements at once, so a request of a warp brings
// 512 bytes.
// Counter that it changes: instructions that load from global memory, to an eighth for x
//     ncu --metrics smsp__sass_inst_executed_op_global_ld.sum
// Expect a factor of two or more: more bytes are on their way at any time, for the same number
// of requests. What is left: x is read twice. A CTA's rows are 64 KB and an SM holds several, so
// the second read often misses L1 and costs L2.
// Rows whose length is no multiple of 8 keep step 2's 2-byte loads (VEC 1).
// Next: rmsnorm_step4_registers.cu
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

constexpr i32 kWarps = 8, kVec = HIDDEN % 8 == 0 ? 8 : 1;

INLINE void load(const u16 *from, float (&v)[1]) { v[0] = bf16_f32(*from); }
INLINE void load(const u16 *from, float (&v)[8])
{
    f32x8 f = unpack8(load16(from));
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = f.v[k];
}
INLINE void store(u16 *to, const float (&v)[1]) { *to = f32_bf16(v[0]); }
INLINE void store(u16 *to, const float (&v)[8])
{
    f32x8 f;
#pragma unroll
    for (int k = 0; k < 8; k++)
        f.v[k] = v[k];
    store16(to, pack8(f));
}

LAB_KERNEL(rmsnorm_params, kWarps * 32)
{
    i32 t = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= p.n_rows)
        return;
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride;
    float sum = 0.f, v[kVec];
    for (i32 i = lane * kVec; i < HIDDEN; i += 32 * kVec) {
        load(x + i, v);
#pragma unroll
        for (int k = 0; k < kVec; k++)
            sum += v[k] * v[k];
    }
    float scale = rsqrtf(warp_sum(sum) / HIDDEN + p.eps);
    for (i32 i = lane * kVec; i < HIDDEN; i += 32 * kVec) {
        load(x + i, v);
#pragma unroll
        for (int k = 0; k < kVec; k++)
            v[k] *= scale * (p.weight[i + k] + (float)PLUS_ONE);
        store(y + i, v);
    }
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = (p.n_rows + kWarps - 1) / kWarps;
}
