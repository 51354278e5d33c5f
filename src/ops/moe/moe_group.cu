// The tokens of each expert together: a counting sort of the (token, j) slots by expert, in rising order
// of slots, and the list of tiles of up to 16 slots of one expert that the grouped products work on.
//
// expert [slots] int32; order [slots]: slot numbers sorted by expert; tile [n] {expert, begin, count},
// n_tiles. Grid: one CTA. Each thread walks its own stretch of the slots twice (count, place), so the
// order is the same in every run. Bytes: 12 a slot; latency-bound.
// Template: EXPERTS (up to 1024), TILE.
#include "moe_params.h"

constexpr int kThreads = 256;

KERNEL __launch_bounds__(kThreads, 1) moe_group(const __grid_constant__ moe_group_params p)
{
    __shared__ i32 start[EXPERTS + 1], tiles[EXPERTS + 1];
    int tid = threadIdx.x;
    pdl_go();
    pdl_wait();
    i32 per = (p.n_slots + kThreads - 1) / kThreads, from = tid * per, to = min(from + per, p.n_slots);
    for (i32 i = tid; i < kThreads * EXPERTS; i += kThreads)
        p.count[i] = 0;
    __syncthreads();
    i32 *mine = p.count + tid * EXPERTS;
    for (i32 i = from; i < to; i++)
        mine[p.expert[i]]++;
    __syncthreads();
    for (i32 e = tid; e < EXPERTS; e += kThreads) { // exclusive over the threads; totals into start
        i32 sum = 0;
        for (int t = 0; t < kThreads; t++) {
            i32 n = p.count[t * EXPERTS + e];
            p.count[t * EXPERTS + e] = sum;
            sum += n;
        }
        start[e] = sum;
        tiles[e] = (sum + TILE - 1) / TILE;
    }
    __syncthreads();
    if (tid == 0) {
        i32 at = 0, tile = 0;
        for (int e = 0; e < EXPERTS; e++) {
            i32 n = start[e], k = tiles[e];
            start[e] = at;
            tiles[e] = tile;
            at += n;
            tile += k;
        }
        start[EXPERTS] = at;
        *p.n_tiles = tile;
    }
    __syncthreads();
    for (i32 e = tid; e < EXPERTS; e += kThreads)
        for (i32 b = start[e], k = tiles[e]; b < start[e + 1]; b += TILE, k++)
            p.tile[k] = {e, b, min(TILE, start[e + 1] - b)};
    for (i32 i = from; i < to; i++) {
        i32 e = p.expert[i];
        p.order[start[e] + mine[e]++] = i;
    }
}
