// The experts' products for matrices of any size, a slot (token, j) at a time:
//
//   UP:    h[slot, j] = act(gate_e[j, :] . x[token]) * (up_e[j, :] . x[token])      token = slot / K_USED
//   down:  y[token, j] (+)= sum over the token's slots, in rising order, of weight[slot] * down_e[j, :] . h[slot]
//
// weights [experts, UP ? 2 ROWS : ROWS, K] bf16, gate before up; x [tokens, K], h [slots, ROWS], y bf16, all
// aligned to 2 bytes only; without gates (moe_act.cuh) UP has ROWS of up alone.
// Grid: x = slots (UP) or tokens, y = groups of four outputs, a warp each. A lane adds
// the elements lane, lane + 32 ... in rising order, then the lanes are added. Slots of padding tokens (expert -1) have
// no products. Bytes: an expert's weights, again for every slot that goes to it.
// Template: K, ROWS, UP, ACT, K_USED, ACCUMULATE (down: adds to y), BIAS (each product has the expert's bias added).
#include "moe_act.cuh"
#include "moe_params.h"

INLINE float dot(const u16 *w, const u16 *x)
{
    float sum = 0.f;
    for (int i = threadIdx.x % 32; i < K; i += 32)
        sum = fmaf(bf16_f32(w[i]), bf16_f32(x[i]), sum);
    return warp_sum(sum);
}

KERNEL __launch_bounds__(128) moe_expert_any(const __grid_constant__ moe_expert_any_params p)
{
    i32 j = blockIdx.y * 4 + threadIdx.x / 32;
    i64 item = blockIdx.x;
    pdl_go();
    pdl_wait();
    if (j >= ROWS || (UP && p.expert[item] < 0)) // a padding token goes to no expert
        return;
    float out = 0.f;
    if constexpr (UP) {
        const u16 *w = p.weights + ((i64)p.expert[item] * (kGate ? 2 : 1) * ROWS + j) * K;
        const u16 *x = p.x + item / K_USED * p.x_stride;
        float gate = dot(w, x), up = kGate ? dot(w + (i64)ROWS * K, x) : 0.f;
        if constexpr (BIAS) {
            i64 at = (i64)p.expert[item] * ROWS + j;
            gate += p.bias[at];
            if constexpr (kGate)
                up += p.up_bias[at];
        }
        out = gated(gate, up, p.limit);
    } else {
        for (i64 slot = item * K_USED; slot < (item + 1) * K_USED; slot++)
            if (p.expert[slot] >= 0) {
                float sum = dot(p.weights + ((i64)p.expert[slot] * ROWS + j) * K, p.x + slot * p.x_stride);
                if constexpr (BIAS)
                    sum += p.bias[(i64)p.expert[slot] * ROWS + j];
                out += p.route[slot] * sum;
            }
    }
    if (threadIdx.x % 32)
        return;
    u16 *y = p.y + item * p.y_stride + j;
    *y = f32_bf16(out + (!UP && ACCUMULATE ? bf16_f32(*y) : 0.f));
}
