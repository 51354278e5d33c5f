// RMSNorm, step 4 of 5: the row stays in registers.
//
// What changes against step 3: a lane keeps its part of the row as it lies in memory (kPer
// vectors of 16 bytes) between the sum and the scaling, so x is read once; and all loads of a
// row are issued before the first is used.
// Counter that it changes: bytes that L1 asks L2 for, from up to 4 to 2 bytes an element of x
//     ncu --metrics lts__t_sectors_op_read.sum
// Expect half as much again. The price are registers: 4,096 columns are 16 vectors a lane, 64
// registers, so fewer warps fit on an SM. Each has 8 KB on its way, which is more than enough
// (an SM needs some 30 KB).
// Rows that are too long for one warp (more than 16 vectors a lane) are shared by 2, 4 ... 32
// warps.
// What is left: a warp loads, then computes, then stores; and 16 KB of fp32 weights pass through
// L1 for each row of 8 KB.
// Next: rmsnorm_step5_two_rows.cu
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

constexpr i32 kVec = HIDDEN % 8 == 0 ? 8 : 1, kVectors = (HIDDEN + kVec - 1) / kVec;

constexpr i32 warps_of(i32 vectors)
{
    i32 warps = 1;
    while (warps < 32 && vectors > warps * 32 * 16)
        warps *= 2;
    return warps;
}

constexpr i32 kShare = warps_of(kVectors);            // warps that share a row
constexpr i32 kWarps = kShare > 4 ? kShare : 4;       // of a CTA
constexpr i32 kRows = kWarps / kShare, kLanes = 32 * kShare, kPer = (kVectors + kLanes - 1) / kLanes;

template <int N> struct Raw { typedef uint4 type; };
template <> struct Raw<1> { typedef u16 type; };
typedef Raw<kVec>::type raw_t;

INLINE void load(const u16 *from, uint4 &raw) { raw = load_weights16(from); }
INLINE void load(const u16 *from, u16 &raw) { raw = *from; }
INLINE void widen(u16 raw, float (&v)[1]) { v[0] = bf16_f32(raw); }
INLINE void widen(const uint4 &raw, float (&v)[8])
{
    f32x8 f = unpack8(raw);
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
    __shared__ float part[kWarps];
    i32 t = blockIdx.x * kRows + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    bool there = t < p.n_rows;
    const u16 *x = p.x + (i64)(there ? ROWS ? p.row[t] : t : 0) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride;
    raw_t raw[kPer];
    float sum = 0.f, v[kVec];
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        i32 at = (i * kLanes + lane) * kVec;
        if (there && at < HIDDEN)
            load(x + at, raw[i]);
    }
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        if (!there || (i * kLanes + lane) * kVec >= HIDDEN)
            continue;
        widen(raw[i], v);
#pragma unroll
        for (int k = 0; k < kVec; k++)
            sum += v[k] * v[k];
    }
    sum = warp_sum(sum);
    if constexpr (kShare > 1) {
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.f;
        for (int i = 0; i < kShare; i++)
            sum += part[threadIdx.x / kLanes * kShare + i];
    }
    float scale = rsqrtf(sum / HIDDEN + p.eps);
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        i32 at = (i * kLanes + lane) * kVec;
        if (!there || at >= HIDDEN)
            continue;
        widen(raw[i], v);
#pragma unroll
        for (int k = 0; k < kVec; k++)
            v[k] *= scale * (__ldg(p.weight + at + k) + (float)PLUS_ONE);
        store(y + at, v);
    }
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = (p.n_rows + kRows - 1) / kRows;
}
