// The experts' products of moe_expert.cu for weights in quantised tiles (ops/linear/quant/linear_quant.h).
//
//   UP:    h[slot, j] = act(gate_e[j, :] . x[token]) * (up_e[j, :] . x[token])    token = slot / K_USED
//   down:  part[slot, j] = weight[slot] * down_e[j, :] . h[slot]                  fp32
//
// weights: the experts' matrices one after the other; UP: ROWS pairs of a gate row and an up row. The slots of one
// expert are the columns of quant_rows.cuh; a slot's sums do not depend on its neighbours.
// Grid: RESIDENT CTAs an SM. An item is a group of rows (8 UP, 16 down) of a tile of slots; CTA i takes the items i,
// i + gridDim.x ... Nothing is fetched before the router has ended, because it decides which experts are needed.
// Bytes: the quantised tiles of every expert in use, once for 16 slots; the roof is memory bandwidth.
// Tiles of slots come from moe_group.cu (SORTED). A single token needs no sorting: each of its slots is a tile, because
// it goes to an expert once; slots of no expert (-1) are left out.
// Template: BITS, OFFSET, FORM, K, ROWS, WARPS, STAGES, RESIDENT, SLOTS, TILES, UP, ACT, K_USED, SORTED, BIAS.
constexpr bool HALF = false;
constexpr int PAIR = UP && ACT != 3; // the square of ReLU has no gate
#include "quant_rows.cuh"
#include "moe_tiles.cuh"

constexpr int kRowTiles = (ROWS + 7) / 8;
static_assert(kGroupRows == kGroupOut, "moe_finish() takes groups of kGroupOut rows");
constexpr i64 kExpertBytes = (kGate ? 2 : 1) * kRowTiles * kTileBytes;

static_assert(SORTED || K_USED <= 32, "a bit for each slot of the token");

// Tile number n. `own` has a bit for each slot of a single token that goes to an expert.
INLINE moe_tile tile_at(const moe_expert_params &p, u32 own, i32 n)
{
    if constexpr (SORTED) {
        return load_tile(p.tile + n);
    } else {
        for (; n > 0; n--)
            own &= own - 1;
        i32 slot = __ffs(own) - 1;
        return {p.expert[slot], slot, 1, 0};
    }
}

KERNEL __launch_bounds__(WARPS * 32, RESIDENT) moe_quant(const __grid_constant__ moe_expert_params p)
{
    __shared__ float part[WARPS][kColumns][17];
    extern __shared__ __align__(128) u8 shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    pdl_go();
    pdl_wait();
    u32 own = SORTED ? 0 : __ballot_sync(~0u, lane < K_USED && p.expert[lane] >= 0);
    int items = (SORTED ? *p.n_tiles : __popc(own)) * kGroups;
    auto aim = [&](int item, const u8 *&low, u32 &apart) {
        int first = item % kGroups * kGroupTiles;
        low = (const u8 *)p.weights + tile_at(p, own, item / kGroups).expert * kExpertBytes + first * kTileBytes;
        apart = (kGate ? kRowTiles : min(1, kRowTiles - 1 - first)) * (u32)kTileBytes;
    };
    auto stream = pair_stream(aim, items, shared);
    stream.begin();
    Columns columns = columns_of(lane);
#pragma unroll 1
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        moe_tile tile = tile_at(p, own, item / kGroups);
        auto slot_at = [&](int n) { return SORTED ? p.order[tile.begin + n] : tile.begin; };
        const u16 *x[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++)
            x[n] = moe_slot_x(p, slot_at(min(n * 8 + g % kTokens, tile.count - 1)));
        float acc[TILES][kAcc][4] = {}, c[TILES][4];
#pragma unroll 1
        for (int step = 0; step < kSteps; step++) {
            pair_products(stream.wait(), step * WARPS + warp, columns, x, lane, acc);
            stream.next();
        }
        row_sums(acc, c);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (n * 8 + 2 * q < kColumns)
                    part[warp][n * 8 + 2 * q + e % 2][g + e / 2 * 8] = c[n][e];
        __syncthreads();
        moe_finish(p, tile, item % kGroups, part, slot_at);
        __syncthreads(); // the next item writes `part`
    }
}
