// The experts' products, grouped: tiles of up to 16 slots that go to one expert share its weights.
//
//   UP:    h[slot, j] = act(gate_e[j, :] . x[token]) * (up_e[j, :] . x[token])    token = slot / K_USED
//   down:  part[slot, j] = weight[slot] * down_e[j, :] . h[slot]                  fp32
//
// BIAS: each of the three products has the expert's bias added.
// weights [experts, UP ? 2 ROWS : ROWS, K] bf16, gate before up;
// without gates (moe_act.cuh) UP has ROWS of up alone. As in linear_small.cu the weights are the 16 rows of
// mma m16n8k16 and the slots its 8 columns. WARPS warps share out K in chunks of 32, and their sums are added in rising
// order: a slot's result does not depend on its neighbours.
// Grid: one CTA for each tile and group of output rows (8 UP, 16 down); the groups of a tile are neighbours. Tiles come
// from moe_group.cu (SORTED), or there is one for each slot (moe_tiles.cuh). A CTA whose tile is empty leaves.
// Bytes: the weights of every expert in use, once a tile; the roof is memory bandwidth.
// Template: K, ROWS, WARPS, UP, ACT, K_USED, SORTED, TILES (of 8 slots, 1 or 2), BIAS.
#include "moe_tiles.cuh"

constexpr int kChunks = (K + 31) / 32, kSteps = (kChunks + WARPS - 1) / WARPS;
// Loads of weights under way, such that 16 warps of an SM (128 registers a thread) have no register spilled.
constexpr int kMost = TILES == 1 || (kSteps <= 8 && K % (WARPS * 32) == 0) ? 8 : 4;
constexpr int kPrefetch = kSteps < kMost ? kSteps : kMost;

KERNEL __launch_bounds__(WARPS * 32, 16 / WARPS) moe_expert(const __grid_constant__ moe_expert_params p)
{
    static_assert(K % 8 == 0, "16-byte loads");
    __shared__ float part[WARPS][TILES * 8][17];
    __shared__ i32 slot[kTileSlots];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    pdl_go();
    pdl_wait();
    moe_tile tile = moe_tile_of(p, blockIdx.x / kGroups, slot);
    if (tile.count == 0)
        return;
    int group = blockIdx.x % kGroups, j0 = group * kGroupOut;
    const u16 *w = (const u16 *)p.weights + (i64)tile.expert * (kGate ? 2 : 1) * ROWS * K;
    int row_low = min(j0 + g, ROWS - 1), row_high = kGate ? ROWS + row_low : min(j0 + 8 + g, ROWS - 1);
    const u16 *low = w + (i64)row_low * K + q * 8, *high = w + (i64)row_high * K + q * 8;
    const u16 *x[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
        x[n] = moe_slot_x(p, slot[min(n * 8 + g, tile.count - 1)]) + q * 8;
    float c[TILES][4] = {};
#pragma unroll 1
    for (int s0 = 0; s0 < kSteps; s0 += kPrefetch) {
        uint4 wl[kPrefetch], wh[kPrefetch];
#pragma unroll
        for (int i = 0; i < kPrefetch; i++) {
            int k = ((s0 + i) * WARPS + warp) * 32;
            bool inside = k + q * 8 < K;
            wl[i] = inside ? load_weights16(low + k) : make_uint4(0, 0, 0, 0);
            wh[i] = inside ? load_weights16(high + k) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < kPrefetch; i++) {
            int k = ((s0 + i) * WARPS + warp) * 32;
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                uint4 b = k + q * 8 < K ? load16(x[n] + k) : make_uint4(0, 0, 0, 0);
                mma_bf16(c[n], wl[i].x, wh[i].x, wl[i].y, wh[i].y, b.x, b.y);
                mma_bf16(c[n], wl[i].z, wh[i].z, wl[i].w, wh[i].w, b.z, b.w);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            part[warp][n * 8 + 2 * q + e % 2][g + e / 2 * 8] = c[n][e];
    __syncthreads();
    moe_finish(p, tile, group, part, [&](int s) { return slot[s]; });
}
