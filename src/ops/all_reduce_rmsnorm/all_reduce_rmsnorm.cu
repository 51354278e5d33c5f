// s = residual + (x_0 + x_1 + ...); y = s * w / rms(s)            all [rows, HIDDEN] bf16, w [HIDDEN] fp32
//
// The sum of the ranks is all_reduce.cu's: rounded to bf16, then the residual is added and rounded. The norm reads the
// rounded s and sums as rmsnorm.cu does, so the bits are those of the two kernels, and all ranks have the same.
//
// A CTA has a row: THREADS lanes with kPer vectors of 8 elements each, in registers between the sum and the norm.
// Beside two kernels it saves a launch and the way of s through L2.
//
//   all_reduce_rmsnorm_push       a CTA of its own for each row; packets as in all_reduce_push, no meeting
//   all_reduce_rmsnorm_one_shot   CTAs walk the rows; one meeting, then each reads its rows of all ranks
//
// Bytes over the links: as all_reduce's. Bound by the way over the link for few rows, by its rate for many.
// Template: RANKS, HIDDEN, THREADS, PLUS_ONE, EARLY (1: the next kernel may start before the ranks have met).
#include "comm.cuh"
#include "all_reduce_params.h"
#include "all_reduce_rmsnorm_params.h"
#include "all_reduce_sum.cuh"

constexpr u32 kVectors = HIDDEN / 8, kPer = (kVectors + THREADS - 1) / THREADS, kWarps = THREADS / 32;

// A lane's vectors of a row.
struct Part {
    uint4 sum[kPer], residual[kPer];
};
struct Weights {
    float of[kPer][8];
};

INLINE u32 vector_of(u32 k) { return k * THREADS + threadIdx.x; }

// 16 bytes at a time: one by one they keep L1 busy for longer than the row does.
INLINE Weights load_norm(const all_reduce_rmsnorm_params &p)
{
    Weights w;
#pragma unroll
    for (u32 k = 0; k < kPer; k++) {
        float4 part[2] = {};
        if (vector_of(k) < kVectors) {
            part[0] = __ldg((const float4 *)p.weight + vector_of(k) * 2);
            part[1] = __ldg((const float4 *)p.weight + vector_of(k) * 2 + 1);
        }
        const float of[8] = {part[0].x, part[0].y, part[0].z, part[0].w,
                             part[1].x, part[1].y, part[1].z, part[1].w};
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            w.of[k][j] = of[j] + (float)PLUS_ONE;
    }
    return w;
}

// The sum over the CTA, returned to all of its threads. `part` are kWarps floats that no thread reads any more.
INLINE float cta_sum(float sum, float *part)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if constexpr (kWarps > 1) {
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.f;
#pragma unroll
        for (u32 i = 0; i < kWarps; i++)
            sum += part[i];
    }
    return sum;
}

// Writes s and y of row t.
INLINE void finish_row(const all_reduce_rmsnorm_params &p, u32 t, const Part &row, const Weights &w,
                       float *part)
{
    float s[kPer][8], squares = 0.f;
#pragma unroll
    for (u32 k = 0; k < kPer; k++) {
        u64 at = ((u64)t * kVectors + vector_of(k)) * 8;
        bool there = vector_of(k) < kVectors;
        uint4 sum = there ? add_residual(row.residual[k], row.sum[k]) : make_uint4(0, 0, 0, 0);
        f32x8 v = unpack8(sum);
        if (there)
            store16(p.sum.y + at, sum);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            s[k][j] = v.v[j];
            squares = fmaf(v.v[j], v.v[j], squares);
        }
    }
    float scale = rsqrtf(cta_sum(squares, part) / HIDDEN + p.eps);
#pragma unroll
    for (u32 k = 0; k < kPer; k++) {
        f32x8 y;
#pragma unroll
        for (int j = 0; j < 8; j++)
            y.v[j] = s[k][j] * scale * w.of[k][j];
        if (vector_of(k) < kVectors)
            store16(p.y + ((u64)t * kVectors + vector_of(k)) * 8, pack8(y));
    }
}

KERNEL __launch_bounds__(THREADS)
    all_reduce_rmsnorm_push(const __grid_constant__ all_reduce_rmsnorm_params p)
{
    __shared__ float part[kWarps];
    u32 call = *p.sum.comm.base + p.sum.comm.order, t = blockIdx.x;
    Weights w = load_norm(p);
    if (EARLY)
        pdl_go();
    pdl_wait();
    Part row;
    uint4 mine[kPer];
#pragma unroll
    for (u32 k = 0; k < kPer; k++) {
        u64 i = (u64)t * kVectors + vector_of(k);
        if (vector_of(k) >= kVectors)
            continue;
        mine[k] = load16(p.sum.x[p.sum.comm.rank] + i * 8);
        row.residual[k] = load16(p.sum.residual + i * 8);
        push_vector(p.sum, call, i, mine[k]);
    }
    u64 since = wait_begins();
#pragma unroll
    for (u32 k = 0; k < kPer; k++)
        if (vector_of(k) < kVectors)
            row.sum[k] = pack8(sum_of(
                await_vectors(p.sum, call, (u64)t * kVectors + vector_of(k), mine[k])));
    wait_ended(p.sum.comm, 0, since);
    finish_row(p, t, row, w, part);
}

KERNEL __launch_bounds__(THREADS)
    all_reduce_rmsnorm_one_shot(const __grid_constant__ all_reduce_rmsnorm_params p)
{
    __shared__ float part[2][kWarps]; // for this row and the next, so that one barrier a row is enough
    u32 number = comm_number(p.sum.comm);
    Weights w = load_norm(p);
    if (EARLY)
        pdl_go();
    pdl_wait();
    comm_meet<RANKS>(p.sum.comm, number);
    for (u32 t = blockIdx.x, odd = 0; t < p.rows; t += gridDim.x, odd ^= 1) {
        Part row;
#pragma unroll
        for (u32 k = 0; k < kPer; k++) {
            u64 i = (u64)t * kVectors + vector_of(k);
            if (vector_of(k) >= kVectors)
                continue;
            row.residual[k] = load16(p.sum.residual + i * 8);
            row.sum[k] = pack8(sum_of(load_row(p.sum, i)));
        }
        finish_row(p, t, row, w, part[odd]);
    }
}
