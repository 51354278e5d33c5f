// y[i] = residual[i] + (x_0[i] + x_1[i] + ...)     all [n * VEC] bf16; x_r in the memory of rank r
//
//   all_reduce_one_shot   every rank reads the buffers of all ranks and adds them itself: one meeting. Bytes over the
//                         links: (RANKS - 1) x for each rank
//   all_reduce_two_shot   rank r adds part r of all buffers, and after a second meeting every rank reads the parts that
//                         the others made: 2 (RANKS - 1) / RANKS x
//
//   all_reduce_push       every rank writes its buffer into the inboxes of its peers and reads its own: data and
//                         numbers cross the links together, so a call takes one way over a link and no meeting. A
//                         thread waits for the packets of its own vector alone. Bytes: 2 (RANKS - 1) x, so it is for
//                         few tokens. A call takes the inbox of its number modulo COMM_INBOXES: two numbers that
//                         follow each other differ by 1 or 2, and of the last call a peer may still read
//
//      inbox of rank r    [COMM_INBOXES][RANKS][2 packets a vector]
//
// The sum of the ranks, in the order of their numbers in fp32, is rounded to bf16 before the residual is added, in both
// alike: so the bits do not depend on which one runs, and all ranks have the same.
//
// CTA b needs what CTAs b of the peers make and nothing else, so a grid need only be resident as a whole.
// Template: RANKS, VEC (8 or 1), EARLY (1: the next kernel may start before the ranks have met), STAGED (1: the ranks
// meet through host memory, into which CTA b first copies the vectors that CTAs b of the peers will read).
#include "comm.cuh"
#include "all_reduce_params.h"
#include "all_reduce_sum.cuh"

// Copies a vector to where the peers read it.
INLINE void stage(const all_reduce_params &p, u64 i)
{
    if constexpr (VEC == 8)
        store16(p.stage + i * 8, load16(p.x[p.comm.rank] + i * 8));
    else
        p.stage[i] = p.x[p.comm.rank][i];
}

INLINE float sum_of_one(const all_reduce_params &p, u64 i)
{
    float sum = 0;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        sum = r == 0 ? bf16_f32(load_peer2(p.x[r] + i)) : sum + bf16_f32(load_peer2(p.x[r] + i));
    return sum;
}

// Stores rounded sums, with the residual if there is one.
INLINE void finish(const all_reduce_params &p, u64 i, uint4 sums)
{
    if (p.residual)
        sums = add_residual(load16(p.residual + i * 8), sums);
    store16(p.y + i * 8, sums);
}

INLINE void finish_one(const all_reduce_params &p, u64 i, u16 sum)
{
    p.y[i] = p.residual ? f32_bf16(bf16_f32(p.residual[i]) + bf16_f32(sum)) : sum;
}

KERNEL __launch_bounds__(COMM_THREADS)
    all_reduce_one_shot(const __grid_constant__ all_reduce_params p)
{
    u32 number = comm_number(p.comm);
    if (EARLY)
        pdl_go();
    pdl_wait();
    constexpr int kDeep = VEC == 1 ? 1 : RANKS <= 2 ? 4 : RANKS <= 4 ? 2 : 1; // loads on their way
    u64 step = gridDim.x * COMM_THREADS;
    if constexpr (STAGED)
        for (u64 i = blockIdx.x * COMM_THREADS + threadIdx.x; i < p.n; i += step)
            stage(p, i);
    comm_meet<RANKS>(p.comm, number);
    for (u64 i = blockIdx.x * COMM_THREADS + threadIdx.x; i < p.n; i += step * kDeep) {
        if constexpr (VEC == 8) {
            Row row[kDeep];
#pragma unroll
            for (int d = 0; d < kDeep; d++)
                if (i + d * step < p.n)
                    row[d] = load_row(p, i + d * step);
#pragma unroll
            for (int d = 0; d < kDeep; d++)
                if (i + d * step < p.n)
                    finish(p, i + d * step, pack8(sum_of(row[d])));
        } else {
            finish_one(p, i, f32_bf16(sum_of_one(p, i)));
        }
    }
}

KERNEL __launch_bounds__(COMM_THREADS) all_reduce_push(const __grid_constant__ all_reduce_params p)
{
    u32 call = *p.comm.base + p.comm.order;
    u64 i = blockIdx.x * COMM_THREADS + threadIdx.x;
    if (EARLY)
        pdl_go();
    pdl_wait();
    if (i >= p.n)
        return;
    uint4 mine = load16(p.x[p.comm.rank] + i * 8);
    push_vector(p, call, i, mine);
    u64 since = wait_begins();
    Row row = await_vectors(p, call, i, mine);
    wait_ended(p.comm, 0, since);
    finish(p, i, pack8(sum_of(row)));
}

KERNEL __launch_bounds__(COMM_THREADS)
    all_reduce_two_shot(const __grid_constant__ all_reduce_params p)
{
    u32 number = comm_number(p.comm), rank = p.comm.rank;
    u64 each = (p.n + RANKS - 1) / RANKS, first = blockIdx.x * COMM_THREADS + threadIdx.x,
        step = gridDim.x * COMM_THREADS;
    if (EARLY)
        pdl_go();
    pdl_wait();
    if constexpr (STAGED)
        for (u64 j = first; j < each; j += step)
#pragma unroll
            for (u32 r = 0; r < RANKS; r++)
                if (r != rank && r * each + j < p.n)
                    stage(p, r * each + j);
    comm_meet<RANKS>(p.comm, number);
    for (u64 j = first; j < each && rank * each + j < p.n; j += step) {
        if constexpr (VEC == 8)
            store16(p.part[rank] + j * 8, pack8(sum_of(load_row(p, rank * each + j))));
        else
            p.part[rank][j] = f32_bf16(sum_of_one(p, rank * each + j));
    }
    comm_meet<RANKS>(p.comm, number + 1);
    for (u64 j = first; j < each; j += step)
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r * each + j >= p.n)
                continue;
            if constexpr (VEC == 8)
                finish(p, r * each + j, load_peer16(p.part[r] + j * 8));
            else
                finish_one(p, r * each + j, load_peer2(p.part[r] + j));
        }
}
