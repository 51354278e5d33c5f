// y[t, :] = x_0[t, :], x_1[t, :], ...     x_r [rows, cols_r] fp32 in the memory of rank r, y [rows, n] fp32
//
// Every rank reads the columns of all ranks, behind one meeting (comm.cuh). Grid: x: CTAs that share the vectors of a
// rank, of VEC columns (4 or 1). A thread has the loads from all ranks on their way at once: one after the other they
// would cost the way over a link each.
// Template: RANKS, VEC, EARLY (1: the next kernel may start before the ranks have met), STAGED (1: the ranks meet
// through host memory, into which CTA b first copies the vectors of its rank that CTAs b of the peers will read).
#include "comm.cuh"
#include "all_gather_params.h"

INLINE u64 vectors_of(const all_gather_params &p, u32 r) { return p.cols[r] / VEC; }

// Where vector i of rank r goes, whose columns begin at `begin`.
INLINE float *place_of(const all_gather_params &p, u32 r, u32 begin, u64 i)
{
    u64 row = p.rows == 1 ? 0 : i / vectors_of(p, r);
    return p.y + row * p.n + begin + (i - row * vectors_of(p, r)) * VEC;
}

INLINE void gather_ones(const all_gather_params &p)
{
    u32 begin = 0;
#pragma unroll
    for (u32 r = 0; r < RANKS; begin += p.cols[r++])
        for (u64 i = blockIdx.x * COMM_THREADS + threadIdx.x; i < vectors_of(p, r) * p.rows;
             i += gridDim.x * COMM_THREADS)
            *place_of(p, r, begin, i) = __uint_as_float(load_relaxed((const u32 *)p.x[r] + i));
}

INLINE void stage_columns(const all_gather_params &p)
{
    const float *mine = p.x[p.comm.rank];
    for (u64 i = blockIdx.x * COMM_THREADS + threadIdx.x; i < vectors_of(p, p.comm.rank) * p.rows;
         i += gridDim.x * COMM_THREADS)
        if constexpr (VEC == 4)
            store16(p.stage + i * 4, load16(mine + i * 4));
        else
            p.stage[i] = mine[i];
}

KERNEL __launch_bounds__(COMM_THREADS) all_gather(const __grid_constant__ all_gather_params p)
{
    u32 number = comm_number(p.comm);
    if (EARLY)
        pdl_go();
    pdl_wait();
    if constexpr (STAGED)
        stage_columns(p);
    comm_meet<RANKS>(p.comm, number);
    if constexpr (VEC == 1) {
        gather_ones(p);
        return;
    }
    constexpr int kDeep = RANKS <= 2 ? 4 : RANKS <= 4 ? 2 : 1; // loads from a rank on their way
    u64 step = gridDim.x * COMM_THREADS, most = 0;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        most = max(most, vectors_of(p, r) * p.rows);
    for (u64 i = blockIdx.x * COMM_THREADS + threadIdx.x; i < most; i += step * kDeep) {
        uint4 v[kDeep][RANKS];
#pragma unroll
        for (int d = 0; d < kDeep; d++)
#pragma unroll
            for (u32 r = 0; r < RANKS; r++)
                if (i + d * step < vectors_of(p, r) * p.rows)
                    v[d][r] = load_peer16(p.x[r] + (i + d * step) * VEC);
#pragma unroll
        for (int d = 0; d < kDeep; d++) {
            u32 begin = 0;
#pragma unroll
            for (u32 r = 0; r < RANKS; begin += p.cols[r++])
                if (i + d * step < vectors_of(p, r) * p.rows)
                    store16(place_of(p, r, begin, i + d * step), v[d][r]);
        }
    }
}
