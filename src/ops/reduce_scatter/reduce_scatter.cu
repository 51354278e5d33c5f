// y[t, i] = x_0[t, first + i] + x_1[t, first + i] + ...     all bf16; x_r [rows, n] in rank r's memory, y [rows, cols]
//
// Rank r gets the columns from first[r] to first[r + 1].
//
//   reduce_scatter_push       every rank writes into the inbox of each peer that peer's part of its own buffer, and
//                             reads its inbox: no meeting (packets as in all_reduce_push). Bytes over the links:
//                             2 (RANKS - 1) parts, so it is for few tokens
//   reduce_scatter_one_shot   behind one meeting every rank reads its part of all buffers: (RANKS - 1) parts
//
// It is the first half of all_reduce_two_shot: sums in the order of the ranks in fp32, rounded to bf16 once, so that
// the parts have the bits of all_reduce. CTA b needs what CTAs b of the peers make and nothing else.
// Template: RANKS, VEC (8 or 1: parts are whole vectors), EARLY (1: the next kernel may start before the ranks have
// met), STAGED (1: the ranks meet through host memory, into which CTA b first copies what CTAs b of the peers will
// read).
#include "comm.cuh"
#include "reduce_scatter_params.h"
#include "all_reduce_sum.cuh"

INLINE u64 vectors_of(const reduce_scatter_params &p, u32 r)
{
    return (u64)p.rows * ((p.first[r + 1] - p.first[r]) / VEC);
}

// Where vector i of rank r's part lies in a buffer, in vectors.
INLINE u64 place_of(const reduce_scatter_params &p, u32 r, u64 i)
{
    u32 each = (p.first[r + 1] - p.first[r]) / VEC;
    u64 row = p.rows == 1 ? 0 : i / each;
    return row * (p.first[RANKS] / VEC) + p.first[r] / VEC + (i - row * each);
}

// Copies what the peers will read to where they read it.
INLINE void stage_parts(const reduce_scatter_params &p, u64 first, u64 step)
{
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        for (u64 i = first; r != p.comm.rank && i < vectors_of(p, r); i += step) {
            u64 at = place_of(p, r, i);
            if constexpr (VEC == 8)
                store16(p.stage + at * 8, load16(p.x[p.comm.rank] + at * 8));
            else
                p.stage[at] = p.x[p.comm.rank][at];
        }
}

INLINE float sum_of_one(const reduce_scatter_params &p, u64 i)
{
    float sum = 0;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        sum = r == 0 ? bf16_f32(load_peer2(p.x[r] + i)) : sum + bf16_f32(load_peer2(p.x[r] + i));
    return sum;
}

KERNEL __launch_bounds__(COMM_THREADS)
    reduce_scatter_one_shot(const __grid_constant__ reduce_scatter_params p)
{
    u32 number = comm_number(p.comm), rank = p.comm.rank;
    if (EARLY)
        pdl_go();
    pdl_wait();
    constexpr int kDeep = VEC == 1 ? 1 : RANKS <= 2 ? 4 : RANKS <= 4 ? 2 : 1; // loads on their way
    u64 first = blockIdx.x * COMM_THREADS + threadIdx.x, step = gridDim.x * COMM_THREADS,
        n = vectors_of(p, rank);
    if constexpr (STAGED)
        stage_parts(p, first, step);
    comm_meet<RANKS>(p.comm, number);
    for (u64 i = first; i < n; i += step * kDeep) {
        if constexpr (VEC == 8) {
            Row row[kDeep];
#pragma unroll
            for (int d = 0; d < kDeep; d++)
                if (i + d * step < n)
                    row[d] = load_row(p, place_of(p, rank, i + d * step));
#pragma unroll
            for (int d = 0; d < kDeep; d++)
                if (i + d * step < n)
                    store16(p.y + (i + d * step) * 8, pack8(sum_of(row[d])));
        } else {
            p.y[i] = f32_bf16(sum_of_one(p, place_of(p, rank, i)));
        }
    }
}

KERNEL __launch_bounds__(COMM_THREADS)
    reduce_scatter_push(const __grid_constant__ reduce_scatter_params p)
{
    u32 call = *p.comm.base + p.comm.order, rank = p.comm.rank;
    u64 i = blockIdx.x * COMM_THREADS + threadIdx.x;
    if (EARLY)
        pdl_go();
    pdl_wait();
    const u16 *x = p.x[rank];
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        if (r != rank && i < vectors_of(p, r))
            push_to(p, call, r, i, load16(x + place_of(p, r, i) * 8));
    if (i >= vectors_of(p, rank))
        return;
    uint4 mine = load16(x + place_of(p, rank, i) * 8);
    u64 since = wait_begins();
    Row row = await_vectors(p, call, i, mine);
    wait_ended(p.comm, 0, since);
    store16(p.y + i * 8, pack8(sum_of(row)));
}
