// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     rows of any length
//
// x [tokens, K] bf16, W [rows, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]), all aligned
// to their elements only. Grid: x = groups of four outputs, one warp for each (paired: for a gate row and the up row
// that belongs to it), y = tiles of TOKENS tokens that share the weight's elements. A lane adds the elements lane,
// lane + 32, ... in rising order, then the lanes' sums are added: the order of a sum depends on K alone.
// Bytes: 2 * rows * K per tile.
// Template: K, TOKENS, PAIR (0 none, 1 silu, 2 gelu), OUT_F32.
#include "linear_params.h"

KERNEL __launch_bounds__(128) linear_any(const __grid_constant__ linear_params p)
{
    int lane = threadIdx.x % 32;
    i32 j = blockIdx.x * 4 + threadIdx.x / 32, t0 = blockIdx.y * TOKENS;
    pdl_go();
    pdl_wait();
    if (j >= p.rows)
        return;
    const u16 *w = (const u16 *)p.w + (i64)j * K, *w_up = w + (PAIR ? (i64)p.rows * K : 0), *x[TOKENS];
#pragma unroll
    for (int n = 0; n < TOKENS; n++) // beyond the last token the last one is read again, and its results thrown away
        x[n] = p.x + (i64)min(t0 + n, p.n_tokens - 1) * p.x_stride;
    float sum[TOKENS] = {}, up[TOKENS] = {}, mine = 0.f, mine_up = 0.f;
    for (int i = lane; i < K; i += 32) {
        float a = bf16_f32(w[i]), b = PAIR ? bf16_f32(w_up[i]) : 0.f;
#pragma unroll
        for (int n = 0; n < TOKENS; n++) {
            float v = bf16_f32(x[n][i]);
            sum[n] = fmaf(a, v, sum[n]);
            if constexpr (PAIR)
                up[n] = fmaf(b, v, up[n]);
        }
    }
#pragma unroll
    for (int n = 0; n < TOKENS; n++) { // lane n finishes token n
        float s = warp_sum(sum[n]), u = PAIR ? warp_sum(up[n]) : 0.f;
        mine = lane == n ? s : mine;
        mine_up = lane == n ? u : mine_up;
    }
    i32 t = t0 + lane;
    if (lane >= TOKENS || t >= p.n_tokens)
        return;
    mine = mine * p.scale + (p.bias ? p.bias[j] : 0.f);
    if constexpr (PAIR) {
        mine_up = mine_up * p.scale + (p.bias ? p.bias[p.rows + j] : 0.f);
        mine = (PAIR == 1 ? silu(mine) : gelu_tanh(mine)) * mine_up;
    }
    if (p.residual)
        mine += bf16_f32(p.residual[(i64)t * p.residual_stride + j]);
    if constexpr (OUT_F32)
        ((float *)p.y)[(i64)t * p.y_stride + j] = mine;
    else
        ((u16 *)p.y)[(i64)t * p.y_stride + j] = f32_bf16(mine);
}
