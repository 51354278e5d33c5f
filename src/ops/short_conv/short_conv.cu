// s[t, i] = bias[i] + sum over j of w[i, j] * v[t - TAPS + 1 + j, i]
// SILU: v = x, y = silu(s); else x = [b | c | u], N bf16 each, v = b * u, y = c * s
//
// Grid: one thread for each token and channel. A token behind the first TAPS - 1 of its sequence finds all its v in x.
// The others need the state, which the sequence may write to the slot that it reads. So the thread of a sequence's
// first token does the first TAPS - 1 tokens, and then writes the state: nobody else reads it. The state behind a token
// that says so (BEHIND) is what its own taps see, and goes to a slot of its own. Padding tokens lie behind the end of
// the sequence that seq_of says, and are left alone. Bytes: 8 N per token, and the state of each
// sequence twice (SILU: 4 N); the v of earlier tokens come from L2. Taps and state are read before the kernel's turn:
// in a step this call alone writes its layer's state (ops/gated_delta/state_columns.cuh). fp32 inside, the products
// summed from the oldest tap on. Template: N, TAPS, SILU, BIAS, BEHIND.
#include "short_conv_params.h"

constexpr int kBefore = TAPS - 1; // rows of the state, oldest first

INLINE float input(const short_conv_params &p, int t, u32 i)
{
    const u16 *x = p.x + (i64)t * p.x_stride + i;
    return SILU ? bf16_f32(x[0]) : bf16_f32(x[0]) * bf16_f32(x[2 * N]);
}

// Writes token t's output; v[j] is what tap j multiplies.
INLINE void output(const short_conv_params &p, int t, u32 i, const float (&w)[TAPS], const float (&v)[TAPS])
{
    float sum = BIAS ? p.bias[i] : 0.f;
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        sum = fmaf(w[j], v[j], sum);
    float y = SILU ? silu(sum) : bf16_f32(p.x[(i64)t * p.x_stride + N + i]) * sum;
    p.y[(i64)t * p.y_stride + i] = f32_bf16(y);
}

// Writes the state behind token t to the token's slot, if it has one; v[j] is what its tap j multiplies.
INLINE void store_behind(const short_conv_params &p, int t, u32 i, const float (&v)[TAPS])
{
    if constexpr (BEHIND) {
        int slot = p.state_behind[t];
        if (slot < 0)
            return;
#pragma unroll
        for (int j = 0; j < kBefore; j++)
            p.state[slot * p.state_stride + j * N + i] = v[j + 1];
    }
}

// The first tokens of a sequence, tokens [begin, begin + n), n <= TAPS - 1 or 1, and its state behind token end - 1.
// v: the state before them, behind a place that is free.
INLINE void first_tokens(const short_conv_params &p, int s, int begin, int end, u32 i, const float (&w)[TAPS],
                         float (&v)[TAPS], int last_slot)
{
    int n = end - begin;
#pragma unroll
    for (int k = 0; k < (kBefore > 1 ? kBefore : 1); k++) {
        if (k >= n)
            break;
#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            v[j] = v[j + 1];
        v[TAPS - 1] = input(p, begin + k, i);
        output(p, begin + k, i, w, v);
        store_behind(p, begin + k, i, v);
    }
    float *to = p.state + last_slot * p.state_stride + i;
#pragma unroll
    for (int j = 0; j < kBefore; j++)
        to[j * N] = n > kBefore ? input(p, end - kBefore + j, i) : v[j + 1];
}

KERNEL __launch_bounds__(256) short_conv(const __grid_constant__ short_conv_params p)
{
    u32 at = blockIdx.x * 256 + threadIdx.x, t = at / N, i = at % N;
    float w[TAPS], v[TAPS];
    bool there = t < (u32)p.n_tokens;
    int s = there ? p.seq_of[t] : 0, begin = p.q_start[s], end = p.q_start[s + 1], k = (int)t - begin;
    there = there && (int)t < end && (k == 0 || k >= kBefore);
    int from = there && k == 0 ? p.state_from[s] : -1, last_slot = there && k == 0 ? p.state_to[s] : 0;
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        w[j] = p.w[i * TAPS + j];
        v[j] = j == 0 || from < 0 ? 0.f : __ldcg(p.state + from * p.state_stride + (j - 1) * N + i);
    }
    pdl_go();
    pdl_wait();
    if (!there)
        return;
    if (k == 0) {
        first_tokens(p, s, begin, end, i, w, v, last_slot);
        return;
    }
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        v[j] = input(p, (int)t - kBefore + j, i);
    output(p, (int)t, i, w, v);
    store_behind(p, (int)t, i, v);
}
