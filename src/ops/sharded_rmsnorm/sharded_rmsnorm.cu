// y_p[t, i] = x_p[t, i] * w_p[i] * rsqrt((sums_0[t, p] + sums_1[t, p] + ...) / whole_p + eps)
//
// x_p, y_p [rows, cols_p] bf16, w_p [cols_p] fp32, sums_r [rows, 2] fp32 in the memory of rank r. Every rank adds the
// sums of all ranks in the order of their numbers, so all have the same bits of the factor.
//
//   sharded_rmsnorm_push      a row's two sums are one packet (comm.cuh): each rank sends all of its rows to its peers,
//                             then waits for theirs, row by row. No meeting. Bytes over the links: 16 (RANKS - 1) a row
//   sharded_rmsnorm_one_shot  one meeting, then each rank reads the sums of all: 8 (RANKS - 1) a row
//
// CTA b has the rows b, b + gridDim.x ..., on every rank: p.warps warps share a row, and COMM_THREADS / 32 / p.warps
// rows go through a CTA together. Every warp of a row waits for itself: no barrier. Bytes: 4 cols a row, out of L2;
// bound by the way over the link for few rows.
// Template: RANKS, VEC (8 or 1), PLUS_ONE, EARLY (1: the next kernel may start before the ranks have met), STAGED (1:
// the ranks meet through host memory, into which CTA b first copies the sums that CTAs b of the peers will read).
#include "comm.cuh"
#include "sharded_rmsnorm_params.h"

// Which rows a thread works on, and where in them.
struct Walk {
    u32 first, step, lane, lanes;
};
INLINE Walk walk_of(const sharded_rmsnorm_params &p)
{
    u32 lanes = p.warps * 32;
    return {threadIdx.x / lanes * gridDim.x + blockIdx.x, COMM_THREADS / lanes * gridDim.x,
            threadIdx.x % lanes, lanes};
}

// The sums of a row that a rank registered.
INLINE float2 load_sums(const float *sums, u32 t)
{
    const u32 *at = (const u32 *)sums + (u64)t * SHARDED_PARTS;
    return make_float2(__uint_as_float(load_relaxed(at)), __uint_as_float(load_relaxed(at + 1)));
}

// Lane r of a warp has the sums of rank r; all lanes get those of all ranks.
INLINE float2 total_of(float2 of_rank)
{
    float2 total = make_float2(0.f, 0.f);
#pragma unroll
    for (int r = 0; r < RANKS; r++) {
        total.x += __shfl_sync(0xffffffffu, of_rank.x, r);
        total.y += __shfl_sync(0xffffffffu, of_rank.y, r);
    }
    return total;
}

INLINE void scale_part(const sharded_part_params &s, u32 t, const Walk &w, float total, float eps)
{
    if (s.cols == 0)
        return;
    constexpr u32 kDeep = VEC == 8 ? 4 : 1; // loads on their way
    float scale = rsqrtf(total / s.whole + eps);
    const u16 *x = s.x + (u64)t * s.x_stride;
    u16 *y = s.y + (u64)t * s.y_stride;
    u32 step = w.lanes * VEC;
    for (u32 at = w.lane * VEC; at < s.cols; at += kDeep * step) {
        if constexpr (VEC == 8) {
            uint4 v[kDeep];
#pragma unroll
            for (u32 d = 0; d < kDeep; d++)
                if (at + d * step < s.cols)
                    v[d] = load16(x + at + d * step);
#pragma unroll
            for (u32 d = 0; d < kDeep; d++) {
                u32 i = at + d * step;
                if (i >= s.cols)
                    continue;
                f32x8 f = unpack8(v[d]);
#pragma unroll
                for (u32 k = 0; k < 8; k++)
                    f.v[k] = f.v[k] * scale * (__ldg(s.weight + i + k) + (float)PLUS_ONE);
                store16(y + i, pack8(f));
            }
        } else {
            y[at] = f32_bf16(bf16_f32(x[at]) * scale * (__ldg(s.weight + at) + (float)PLUS_ONE));
        }
    }
}

// Writes row t of both parts. Lane r of the warp brings the sums of rank r.
INLINE void finish_row(const sharded_rmsnorm_params &p, u32 t, const Walk &w, float2 of_rank)
{
    float2 total = total_of(of_rank);
    scale_part(p.part[0], t, w, total.x, p.eps);
    scale_part(p.part[1], t, w, total.y, p.eps);
}

KERNEL __launch_bounds__(COMM_THREADS)
    sharded_rmsnorm_push(const __grid_constant__ sharded_rmsnorm_params p)
{
    u32 call = *p.comm.base + p.comm.order, number = packet_number(call), rank = p.comm.rank;
    u32 peer = threadIdx.x % 32;
    Walk w = walk_of(p);
    if (EARLY)
        pdl_go();
    pdl_wait();
    if (w.lane < RANKS && peer != rank)
        for (u32 t = w.first; t < p.rows; t += w.step) {
            float2 mine = load_sums(p.sums[rank], t);
            store_packet((uint4 *)p.inbox[peer] + packet_of<RANKS>(call, rank, t),
                         __float_as_uint(mine.x), __float_as_uint(mine.y), number);
        }
    for (u32 t = w.first; t < p.rows; t += w.step) {
        float2 of_rank = make_float2(0.f, 0.f);
        u64 since = wait_begins();
        if (peer == rank) {
            of_rank = load_sums(p.sums[rank], t);
        } else if (peer < RANKS) {
            uint2 sums = await_packet(
                p.comm, (const uint4 *)p.inbox[rank] + packet_of<RANKS>(call, peer, t), number, peer);
            of_rank = make_float2(__uint_as_float(sums.x), __uint_as_float(sums.y));
        }
        __syncwarp();
        if (t == w.first)
            wait_ended(p.comm, 0, since);
        finish_row(p, t, w, of_rank);
    }
}

KERNEL __launch_bounds__(COMM_THREADS)
    sharded_rmsnorm_one_shot(const __grid_constant__ sharded_rmsnorm_params p)
{
    u32 number = comm_number(p.comm), peer = threadIdx.x % 32;
    Walk w = walk_of(p);
    if (EARLY)
        pdl_go();
    pdl_wait();
    if constexpr (STAGED)
        for (u32 t = w.first; t < p.rows && w.lane == 0; t += w.step) {
            float2 mine = load_sums(p.sums[p.comm.rank], t);
            p.stage[(u64)t * SHARDED_PARTS] = mine.x;
            p.stage[(u64)t * SHARDED_PARTS + 1] = mine.y;
        }
    comm_meet<RANKS>(p.comm, number);
    for (u32 t = w.first; t < p.rows; t += w.step)
        finish_row(p, t, w, peer < RANKS ? load_sums(p.sums[peer], t) : make_float2(0.f, 0.f));
}
