// The experts' products (moe_expert.cu, moe_quant.cu) share this: the slots of a tile, and the end of its sums. Needs
// ROWS, WARPS, UP, ACT, K_USED, SORTED, BIAS.
#include "moe_act.cuh"
#include "moe_params.h"

constexpr int kGroupOut = kGate ? 8 : 16; // output rows of a group
constexpr int kGroups = (ROWS + kGroupOut - 1) / kGroupOut;
constexpr int kTileSlots = 16, kFewTokens = 16;

INLINE moe_tile load_tile(const moe_tile *from)
{
    uint4 v = load16(from);
    return {(i32)v.x, (i32)v.y, (i32)v.z, 0};
}

// x's row of a slot.
INLINE const u16 *moe_slot_x(const moe_expert_params &p, i32 slot)
{
    return p.x + (i64)(UP ? slot / K_USED : slot) * p.x_stride;
}

// Tile number n for a whole CTA, with its slots in slot[0 .. count). A count of 0 says that there is no such tile; then
// the CTA must leave. Every thread calls it.
//
// SORTED: the tile that moe_group.cu has put there. Otherwise there are at most 16 tokens, none of which goes to an
// expert twice, so an expert has at most one tile. The tile is that of slot n's expert if no earlier slot goes there
// too; every warp finds its slots with a vote, in rising order.
INLINE moe_tile moe_tile_of(const moe_expert_params &p, i32 n, i32 (&slot)[kTileSlots])
{
    if constexpr (SORTED) {
        moe_tile tile = load_tile(p.tile + n);
        if ((i32)threadIdx.x < tile.count)
            slot[threadIdx.x] = p.order[tile.begin + threadIdx.x];
        __syncthreads();
        return tile;
    } else {
        constexpr int kWords = (kFewTokens * K_USED + 31) / 32;
        int lane = threadIdx.x % 32;
        i32 expert = p.expert[n], there[kWords], count = 0, earlier = 0;
#pragma unroll
        for (int w = 0; w < kWords; w++)
            there[w] = w * 32 + lane < p.n_slots ? p.expert[w * 32 + lane] : -1;
        if (expert < 0)
            return {0, 0, 0, 0};
#pragma unroll
        for (int w = 0; w < kWords; w++) {
            u32 same = __ballot_sync(~0u, there[w] == expert);
            i32 at = count + __popc(same & ((1u << lane) - 1));
            if (threadIdx.x < 32 && there[w] == expert && at < kTileSlots)
                slot[at] = w * 32 + lane;
            earlier |= __ballot_sync(~0u, there[w] == expert && w * 32 + lane < n);
            count += __popc(same);
        }
        __syncthreads();
        return {expert, 0, earlier ? 0 : min(count, kTileSlots), 0};
    }
}

// part[warp][s][row] are the sums of a group's outputs for slot number s of the tile (gates: rows 0 .. 7 gate, 8 ..
// 15 up). Adds the warps' in rising order, and the expert's bias, and writes h, or the slot's result times its routing
// weight. slot_at(s) is the s-th slot.
template <int N, class SlotAt>
INLINE void moe_finish(const moe_expert_params &p, const moe_tile &tile, int group, const float (&part)[WARPS][N][17],
                       const SlotAt &slot_at)
{
    for (int i = threadIdx.x; i < tile.count * kGroupOut; i += WARPS * 32) {
        int s = i / kGroupOut, r = i % kGroupOut, j = group * kGroupOut + r;
        if (j >= ROWS)
            continue;
        i32 slot = slot_at(s);
        float sum = 0.f, up = 0.f;
#pragma unroll
        for (int k = 0; k < WARPS; k++) {
            sum += part[k][s][r];
            if constexpr (kGate)
                up += part[k][s][r + 8];
        }
        if constexpr (BIAS) {
            sum += p.bias[tile.expert * ROWS + j];
            if constexpr (kGate)
                up += p.up_bias[tile.expert * ROWS + j];
        }
        if constexpr (UP)
            ((u16 *)p.y)[(i64)slot * ROWS + j] = f32_bf16(gated(sum, up, p.limit));
        else
            ((float *)p.y)[(i64)slot * ROWS + j] = p.route[slot] * sum;
    }
}
