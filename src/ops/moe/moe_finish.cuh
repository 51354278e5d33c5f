// The experts' products (moe_expert.cu, moe_quant.cu): their parameters, and what becomes of a tile's sums.
// Needs ROWS, WARPS, UP, GELU, K_USED.
#include "moe_params.h"

constexpr int kGroupOut = UP ? 8 : 16; // output rows of a group

// x's row of the n-th slot of a tile; the last one's beyond it.
INLINE const u16 *moe_slot_x(const moe_expert_params &p, const moe_tile &tile, int n)
{
    i32 slot = p.order[tile.begin + min(n, tile.count - 1)];
    return p.x + (i64)(UP ? slot / K_USED : slot) * p.x_stride;
}

// part[warp][slot][row] are the sums of the group's outputs (UP: rows 0 .. 7 gate, 8 .. 15 up). Adds the warps' in
// rising order and writes h, or the slot's result times its routing weight.
template <int N> INLINE void moe_finish(const moe_expert_params &p, const moe_tile &tile, int group,
                                             const float (&part)[WARPS][N][17])
{
    for (int i = threadIdx.x; i < tile.count * kGroupOut; i += WARPS * 32) {
        int s = i / kGroupOut, r = i % kGroupOut, j = group * kGroupOut + r;
        if (j >= ROWS)
            continue;
        i32 slot = p.order[tile.begin + s];
        float sum = 0.f, up = 0.f;
#pragma unroll
        for (int k = 0; k < WARPS; k++) {
            sum += part[k][s][r];
            if constexpr (UP)
                up += part[k][s][r + 8];
        }
        if constexpr (UP)
            ((u16 *)p.y)[(i64)slot * ROWS + j] = f32_bf16((GELU ? gelu_tanh(sum) : silu(sum)) * up);
        else
            ((float *)p.y)[(i64)slot * ROWS + j] = p.route[slot] * sum;
    }
}
