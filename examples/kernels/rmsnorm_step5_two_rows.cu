// RMSNorm, step 5 of 5: two rows at once.
//
// What changes against step 4: the warps that share a row work on TOGETHER rows at the same time. A
// weight that was loaded serves all of them, and the loads of both rows are on their way before the
// first sum begins. A lane holds 8 vectors of each row, not 16, so a row of 4,096 columns belongs to
// two warps: 64 registers of rows, and more warps fit on an SM. (Two rows of 16 vectors need more
// registers than there are: they spilled.) Stores are marked as streaming (.cs): the lines that they
// fill are the first ones to leave L2, so that they do not push out rows which are still to be read.
// Counter that it changes: bytes through L1, from 24 KB a row of 4,096 columns (8 of x, 16 of
// weights) to 16 KB
//     ncu --metrics l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum
// Expect some percent, up to 85 % of the memory roof on an H200: reads and writes share the
// memory's bus, which loses time at each turn from one to the other, and a copy of the same
// bytes does not come much closer to the roof of pure reads.
// Another way to the same time: src/ops/rmsnorm/rmsnorm.cu. Its CTAs walk over the rows and keep the
// weights in registers. Its grid must then have exactly the CTAs that fit, and registers set this
// number, not threads: with a CTA more on each SM it took 14 % longer.
#include "lab_kernel.cuh"
#include "rmsnorm_params.h"

#ifndef TOGETHER
#define TOGETHER 2
#endif
#ifndef WARPS
#define WARPS 4
#endif
#ifndef MOST
#define MOST 8 // vectors of a row that a lane holds
#endif

constexpr i32 kVec = HIDDEN % 8 == 0 ? 8 : 1, kVectors = (HIDDEN + kVec - 1) / kVec;

constexpr i32 warps_of(i32 vectors)
{
    i32 warps = 1;
    while (warps < 32 && vectors > warps * 32 * MOST)
        warps *= 2;
    return warps;
}

constexpr i32 kShare = warps_of(kVectors);              // warps that share a row
constexpr i32 kWarps = kShare > WARPS ? kShare : WARPS; // of a CTA
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
    __stcs((uint4 *)to, pack8(f));
}
// Plain loads, which the compiler keeps behind the stores of the vector before. With __ldg it moves all
// weights of a lane in front of the first store, and spills.
INLINE void load_weights(const float *from, float (&w)[1]) { w[0] = *from + (float)PLUS_ONE; }
INLINE void load_weights(const float *from, float (&w)[8])
{
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
#pragma unroll
    for (int k = 0; k < 8; k++)
        w[k] += (float)PLUS_ONE;
}

// Rows t0, t0 + 1 ... of this warp, or of the kShare warps that share them.
INLINE void sum_rows(raw_t (&raw)[TOGETHER][kPer], float (&sum)[TOGETHER], i32 lane)
{
    __shared__ float part[TOGETHER][kWarps];
#pragma unroll
    for (int r = 0; r < TOGETHER; r++) {
        sum[r] = 0.f;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            float v[kVec];
            widen(raw[r][i], v);
#pragma unroll
            for (int k = 0; k < kVec; k++)
                sum[r] += v[k] * v[k];
        }
        sum[r] = warp_sum(sum[r]);
    }
    if constexpr (kShare > 1) {
        if (threadIdx.x % 32 == 0)
            for (int r = 0; r < TOGETHER; r++)
                part[r][threadIdx.x / 32] = sum[r];
        __syncthreads();
        for (int r = 0; r < TOGETHER; r++) {
            sum[r] = 0.f;
            for (int i = 0; i < kShare; i++)
                sum[r] += part[r][threadIdx.x / kLanes * kShare + i];
        }
    }
}

LAB_KERNEL(rmsnorm_params, kWarps * 32)
{
    i32 first = (blockIdx.x * kRows + threadIdx.x / kLanes) * TOGETHER, lane = threadIdx.x % kLanes;
    raw_t raw[TOGETHER][kPer];
    float sum[TOGETHER], v[kVec], w[kVec];
#pragma unroll
    for (int r = 0; r < TOGETHER; r++) {
        i32 t = first + r;
        const u16 *x = p.x + (i64)(t < p.n_rows ? ROWS ? p.row[t] : t : 0) * p.x_stride;
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            i32 at = (i * kLanes + lane) * kVec;
            raw[r][i] = raw_t{};
            if (t < p.n_rows && at < HIDDEN)
                load(x + at, raw[r][i]);
        }
    }
    sum_rows(raw, sum, lane);
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        i32 at = (i * kLanes + lane) * kVec;
        if (at >= HIDDEN)
            continue;
        load_weights(p.weight + at, w);
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            if (first + r >= p.n_rows)
                continue;
            float scale = rsqrtf(sum[r] / HIDDEN + p.eps);
            widen(raw[r][i], v);
#pragma unroll
            for (int k = 0; k < kVec; k++)
                v[k] *= scale * w[k];
            store(p.y + (i64)(first + r) * p.y_stride + at, v);
        }
    }
}

LAB_LAUNCH(rmsnorm_params)
{
    launch.grid = (p.n_rows + kRows * TOGETHER - 1) / (kRows * TOGETHER);
}
