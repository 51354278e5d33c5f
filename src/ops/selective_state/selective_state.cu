// S = e^(step decay) S + B (step x)^T, y = S^T C + skip x: one head's state S [SDIM, HDIM] fp32, token by token
// x [tokens, x | B | C] bf16, dt [tokens, heads] bf16, y [tokens, heads HDIM] bf16
//
// Grid: (heads * blocks of kBlock columns, sequences), 128 threads. A column of S needs no other column, so a warp
// keeps 8 COLS of them in registers from a sequence's first token to its last: 4 lanes share a column, kRows rows each,
// and each lane has COLS neighbouring columns. A lane sums its rows in four interleaved parts, and two shuffles join
// the lanes, whatever COLS is: a token's bits depend on neither the variant nor the batch. The CTA first stages TOKENS
// tokens in shared memory: B and C as fp32, laid out so that the 4 lanes' float4 hit different banks, x, and the gates.
// Bytes of a decode: 8 SDIM HDIM per head; with COLS = 2 a thread has 32 loads of 8 bytes in flight (SDIM 128), which
// is enough for memory's roof, and issues them before the kernel's turn (state_columns.cuh). In a prefill a token's y
// is not waited for by the next one, only its S is.
// The state behind tokens that say so (BEHIND) goes to a slot of its own as well: guesses may turn out to be wrong.
// Padding sequences lie behind the batch's, and seq_of of their tokens is 0; they have no state and are left out.
// Template: SDIM, HDIM, COLS (1 or 2), TOKENS, LOG_DECAY, BEHIND.
#include "selective_state_params.h"

constexpr int kStateRows = SDIM, kStateCols = HDIM;
#include "state_columns.cuh"

struct Staged {
    float b[TOKENS][4 * kStride], c[TOKENS][4 * kStride], x[TOKENS][kBlock], keep[TOKENS], step[TOKENS];
    int behind[BEHIND ? TOKENS : 1];
};

// Tokens [t0, t0 + n) of head j, and of its x the columns from `first` on.
INLINE void stage(const selective_state_params &p, int t0, int n, int j, int first, float decay, float dt_bias,
                  Staged &s)
{
    int group = p.heads * HDIM + j / (p.heads / p.groups) * SDIM;
    for (int i = threadIdx.x; i < n * 4 * kRows; i += 128) {
        int t = i / (4 * kRows), row = i % (4 * kRows), at = row / kRows * kStride + row % kRows;
        const u16 *b = p.x + (i64)(t0 + t) * p.x_stride + group + row;
        s.b[t][at] = row < SDIM ? bf16_f32(b[0]) : 0.f;
        s.c[t][at] = row < SDIM ? bf16_f32(b[p.groups * SDIM]) : 0.f;
    }
    for (int i = threadIdx.x; i < n * kBlock; i += 128) {
        int t = i / kBlock, col = first + i % kBlock;
        s.x[t][i % kBlock] = col < HDIM ? bf16_f32(p.x[(i64)(t0 + t) * p.x_stride + j * HDIM + col]) : 0.f;
    }
    for (int t = threadIdx.x; t < n; t += 128) {
        float z = bf16_f32(p.dt[(i64)(t0 + t) * p.dt_stride + j]) + dt_bias;
        float step = z > 20.f ? z : log1pf(expf(z));
        step = fminf(fmaxf(step, p.step_min), p.step_max);
        s.keep[t] = expf(step * decay);
        s.step[t] = step;
        if constexpr (BEHIND)
            s.behind[t] = p.state_behind[t0 + t];
    }
}

// One token: the thread's part of S, and y of its columns.
INLINE void step(const Staged &in, int t, u32 part, u32 col, float skip, float (&s)[COLS][kRows], float (&y)[COLS])
{
    const float *b = in.b[t] + part * kStride, *c = in.c[t] + part * kStride;
    float keep = in.keep[t], dx[COLS], sum[COLS][4];
#pragma unroll
    for (int i = 0; i < COLS; i++) {
        dx[i] = in.step[t] * in.x[t][col + i];
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[i][e] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < kRows; i++) {
#pragma unroll
        for (int e = 0; e < COLS; e++) {
            s[e][i] = fmaf(b[i], dx[e], keep * s[e][i]);
            sum[e][i % 4] = fmaf(c[i], s[e][i], sum[e][i % 4]);
        }
    }
#pragma unroll
    for (int i = 0; i < COLS; i++)
        y[i] = fmaf(skip, in.x[t][col + i], column_sum(sum[i]));
}

KERNEL __launch_bounds__(128) selective_state(const __grid_constant__ selective_state_params p)
{
    __shared__ Staged in;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane / 8;
    int j = blockIdx.x / kBlocks, first = blockIdx.x % kBlocks * kBlock, q = blockIdx.y;
    u32 col = warp * kWarpCols + lane % 8 * COLS; // in the block
    int begin = p.q_start[q], end = p.q_start[q + 1], slot = p.state_from[q];
    if (begin >= end || (q > 0 && p.seq_of[begin] != q)) {
        pdl_go();
        pdl_wait();
        return;
    }
    bool mine = first + col < HDIM;
    i64 at = (i64)j * SDIM * HDIM + first + col;
    float s[COLS][kRows], y[COLS], skip = __ldg(p.skip + j), dt_bias = __ldg(p.dt_bias + j);
    float decay = LOG_DECAY ? -expf(__ldg(p.decay + j)) : __ldg(p.decay + j);
    int last_slot = p.state_to[q];
    load_state(mine && slot >= 0 ? p.state + slot * p.state_stride + at : nullptr, part, s);
    pdl_go();
    pdl_wait();
    for (int t0 = begin; t0 < end; t0 += TOKENS) {
        int n = end - t0 < TOKENS ? end - t0 : TOKENS;
        __syncthreads();
        stage(p, t0, n, j, first, decay, dt_bias, in);
        __syncthreads();
        for (int t = 0; t < n; t++) {
            step(in, t, part, col, skip, s, y);
            u16 *to = p.y + (i64)(t0 + t) * p.y_stride + j * HDIM + first + col;
#pragma unroll
            for (int c = 0; c < COLS; c++)
                if (part == 0 && mine)
                    to[c] = f32_bf16(y[c]);
            if constexpr (BEHIND) {
                if (mine && in.behind[t] >= 0)
                    store_state(p.state + in.behind[t] * p.state_stride + at, part, s);
            }
        }
    }
    if (mine)
        store_state(p.state + last_slot * p.state_stride + at, part, s);
}
