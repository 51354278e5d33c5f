// The tokens of each expert together: a counting sort of the (token, j) slots by expert, in rising order of slots,
// and the list of tiles of up to TILE slots of one expert that the grouped products work on. The tiles of an expert
// have about the same number of slots.
//
//   expert [slots]          2  0  2  -1  0  2         -1: the slot of a padding token, it goes nowhere
//   order                   1  4 | 0  2  5            slot numbers by expert
//   tile (TILE = 8)        {0, begin 0, count 2} {2, begin 2, count 3} {count 0} ...
//
// Grid: a CTA an expert. Every CTA counts the slots of all experts, from which follows where its own begin, and then
// places its own. So no CTA waits for another, and nothing depends on which one is first. The list ends with tiles
// without slots, up to n_room. Bytes: 8 a slot and expert, from L2; latency-bound.
// Template: EXPERTS (up to 1024), TILE (a multiple of 8), THREADS.
#include "moe_params.h"

constexpr int kThreads = THREADS, kWarps = kThreads / 32;
static_assert(TILE % 8 == 0, "widths of tiles are rounded up to 8");

constexpr int kBatch = 16; // loads of a lane under way

// The experts of slots i, i + 32 ...; -1 behind the last.
INLINE void load_batch(const moe_group_params &p, i32 i, i32 to, i32 (&there)[kBatch])
{
#pragma unroll
    for (int b = 0; b < kBatch; b++)
        there[b] = i + b * 32 < to ? p.expert[i + b * 32] : -1;
}

INLINE i32 lanes_sum(i32 v) { return __reduce_add_sync(~0u, v); }

KERNEL __launch_bounds__(kThreads) moe_group(const __grid_constant__ moe_group_params p)
{
    __shared__ i32 count[EXPERTS], own[kWarps], below[kWarps], below_tiles[kWarps];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i32 e = blockIdx.x;
    for (int i = threadIdx.x; i < EXPERTS; i += kThreads)
        count[i] = 0;
    pdl_go();
    pdl_wait();
    __syncthreads();
    // 1. Each warp counts its own stretch of the slots.
    i32 stretch = (p.n_slots + kThreads - 1) / kThreads * 32;
    i32 from = warp * stretch, to = min(from + stretch, p.n_slots);
    i32 mine = 0;
#pragma unroll 1
    for (i32 i = from; i < to; i += kBatch * 32) {
        i32 there[kBatch];
        load_batch(p, i + lane, to, there);
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
            if ((u32)there[b] < EXPERTS)
                atomicAdd(&count[there[b]], 1);
            mine += __popc(__ballot_sync(~0u, there[b] == e));
        }
    }
    if (lane == 0)
        own[warp] = mine;
    __syncthreads();
    // 2. Where this expert's slots and tiles begin.
    i32 slots = 0, tiles = 0;
    for (i32 i = threadIdx.x; i < e; i += kThreads) {
        slots += count[i];
        tiles += (count[i] + TILE - 1) / TILE;
    }
    slots = lanes_sum(slots);
    tiles = lanes_sum(tiles);
    if (lane == 0) {
        below[warp] = slots;
        below_tiles[warp] = tiles;
    }
    __syncthreads();
    i32 begin = 0, first_tile = 0, n = count[e], n_tiles = (n + TILE - 1) / TILE;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
        begin += below[w];
        first_tile += below_tiles[w];
    }
    // 3. Each warp places the slots of its stretch behind those of the stretches before.
    i32 at = begin;
    for (int w = 0; w < warp; w++)
        at += own[w];
#pragma unroll 1
    for (i32 i = from; i < to; i += kBatch * 32) {
        i32 there[kBatch];
        load_batch(p, i + lane, to, there);
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
            u32 all = __ballot_sync(~0u, there[b] == e);
            if (there[b] == e)
                p.order[at + __popc(all & ((1u << lane) - 1))] = i + b * 32 + lane;
            at += __popc(all);
        }
    }
    i32 width = ((n + n_tiles - 1) / max(n_tiles, 1) + 7) / 8 * 8;
    for (i32 k = threadIdx.x; k < n_tiles; k += kThreads)
        p.tile[first_tile + k] = {e, begin + k * width, min(width, n - k * width), 0};
    if (e < EXPERTS - 1)
        return;
    // 4. The last expert's CTA ends the list.
    for (i32 k = first_tile + n_tiles + threadIdx.x; k < p.n_room; k += kThreads)
        p.tile[k] = {0, 0, 0, 0};
    if (threadIdx.x == 0)
        *p.n_tiles = first_tile + n_tiles;
}
