// y[t, :] = x_0[t, :], x_1[t, :], ...     x_r [rows, cols_r] fp32 in the memory of rank r, y [rows, n] fp32
//
// Every rank reads the columns of all ranks, behind one meeting (comm.cuh). Grid: x: CTAs that share the columns of a
// row, in vectors of VEC (4 or 1); they walk over the rows.
// Template: RANKS, VEC, EARLY (1: the next kernel may start before the ranks have met).
#include "comm.cuh"
#include "all_gather_params.h"

KERNEL __launch_bounds__(COMM_THREADS) all_gather(const __grid_constant__ all_gather_params p)
{
    u32 number = comm_number(p.comm);
    if (EARLY)
        pdl_go();
    pdl_wait();
    comm_meet<RANKS>(p.comm, number);
    u32 begin = 0;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++) {
        u64 vectors = p.cols[r] / VEC, n = vectors * p.rows;
        for (u64 i = blockIdx.x * COMM_THREADS + threadIdx.x; i < n;
             i += gridDim.x * COMM_THREADS) {
            u64 row = i / vectors, col = i % vectors * VEC;
            const float *from = p.x[r] + row * p.cols[r] + col;
            float *to = p.y + row * p.n + begin + col;
            if constexpr (VEC == 4)
                store16(to, load_peer16(from));
            else
                *to = __uint_as_float(load_relaxed((const u32 *)from));
        }
        begin += p.cols[r];
    }
}
