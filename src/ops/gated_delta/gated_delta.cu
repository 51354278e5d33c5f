// S = e^g S + k d^T, d = beta (v - e^g S^T k), y = S^T q: one head's state S [KDIM, VDIM] fp32, token by token
// x [tokens, q | k | v] bf16, a, b [tokens, V heads] bf16, y [tokens, V heads VDIM] bf16
// CHANNELS: a [tokens, V heads KDIM] bf16, and e^g is a number for each row of S.
//
// Grid: (V heads * blocks of kBlock columns, sequences), 128 threads. A column of S needs no other column, so a warp
// keeps 8 COLS of them in registers from a sequence's first token to its last: 4 lanes share a column, kRows rows each,
// and each lane has COLS neighbouring columns. A lane sums its rows in four interleaved parts, and two shuffles join
// the lanes, whatever COLS is: a token's bits depend on neither the variant nor the batch. The CTA first stages TOKENS
// tokens in shared memory: q and k of unit length as fp32, laid out so that the 4 lanes' float4 hit different banks, v,
// and the gates. The CTAs of few sequences leave an SM four warps, which hide nothing for each other. Their threads
// load the tokens behind the staged ones before these are computed (AHEAD). That takes 196 registers, so an SM has two
// CTAs and not five: with many sequences tokens are staged in pieces instead.
// Bytes of a decode: 8 KDIM VDIM per head; with COLS = 2 a thread has 32 loads of 8 bytes in flight (KDIM 128), which
// is enough for memory's roof, and issues them before the kernel's turn (state_columns.cuh). A prefill is bound by the
// latency of a token: two sums over rows, one after the other.
// The state behind tokens that say so (BEHIND) goes to a slot of its own as well: guesses may turn out to be wrong.
// Padding sequences lie behind the batch's, and seq_of of their tokens is 0; they have no state and are left out.
// Template: KDIM, VDIM, COLS (1 or 2), TOKENS, AHEAD, LOG_DECAY, TILED, BEHIND, CHANNELS.
#include "gated_delta_params.h"

constexpr int kStateRows = KDIM, kStateCols = VDIM;
#include "state_columns.cuh"
constexpr int kPer = (4 * kRows + 31) / 32; // elements of q that a lane normalises

struct Staged {
    float q[TOKENS][4 * kStride], k[TOKENS][4 * kStride], v[TOKENS][kBlock], keep[TOKENS], beta[TOKENS];
    float keeps[CHANNELS ? TOKENS : 1][CHANNELS ? 4 * kStride : 1]; // laid out as q and k
    int behind[BEHIND ? TOKENS : 1];
};

// A thread's share of a piece of the tokens, as it lies in memory.
constexpr int kPiece = AHEAD ? TOKENS : CHANNELS && COLS == 1 && kRows % 8 == 0 ? 4 : 8;
constexpr int kEachUnit = kPiece / 4, kEachV = kPiece * kBlock / 128; // tokens of a warp; values of a thread
constexpr int kEachKeep = CHANNELS ? kPiece * 4 * kRows / 128 : 1;
static_assert(TOKENS % kPiece == 0 && kPiece % 4 == 0 && (!CHANNELS || kPiece * kRows % 32 == 0),
              "every thread has as much");
struct Raw {
    u16 q[kEachUnit][kPer], k[kEachUnit][kPer], v[kEachV], a[kEachKeep], b;
    int behind;
};

INLINE void load_unit(const u16 *x, bool has, u32 lane, u16 (&to)[kPer])
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = i * 32 + lane;
        to[i] = has && at < KDIM ? x[at] : 0;
    }
}

// Tokens [t0, t0 + n) of head j, and of its v the columns from `first` on.
INLINE void load(const gated_delta_params &p, int t0, int n, int j, int first, Raw &raw)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int head = TILED ? j % p.k_heads : j / (p.v_heads / p.k_heads);
#pragma unroll
    for (int e = 0; e < kEachUnit; e++) {
        int t = e * 4 + warp;
        const u16 *x = p.x + (i64)(t0 + t) * p.x_stride + head * KDIM;
        load_unit(x, t < n, lane, raw.q[e]);
        load_unit(x + p.k_heads * KDIM, t < n, lane, raw.k[e]);
    }
#pragma unroll
    for (int e = 0; e < kEachV; e++) {
        int t = (e * 128 + threadIdx.x) / kBlock, col = first + (e * 128 + threadIdx.x) % kBlock;
        const u16 *v = p.x + (i64)(t0 + t) * p.x_stride + 2 * p.k_heads * KDIM + j * VDIM;
        raw.v[e] = t < n && col < VDIM ? v[col] : 0;
    }
#pragma unroll
    for (int e = 0; CHANNELS && e < kEachKeep; e++) {
        int t = (e * 128 + threadIdx.x) / (4 * kRows), at = (e * 128 + threadIdx.x) % (4 * kRows);
        raw.a[e] = t < n && at < KDIM ? p.a[(i64)(t0 + t) * p.a_stride + j * KDIM + at] : 0;
    }
    int t = threadIdx.x;
    if (t < n) {
        if constexpr (!CHANNELS)
            raw.a[0] = p.a[(i64)(t0 + t) * p.a_stride + j];
        raw.b = p.b[(i64)(t0 + t) * p.b_stride + j];
        if constexpr (BEHIND)
            raw.behind = p.state_behind[t0 + t];
    }
}

// e^g, what a step leaves of a number of S, from an element of a and the one of dt_bias.
INLINE float kept(u16 a, float dt_bias, float decay)
{
    float z = bf16_f32(a) + dt_bias, step = z > 20.f ? z : log1pf(expf(z));
    return expf(step * decay);
}

// to = x * scale / sqrt(sum x^2 + 1e-6), in the lanes' layout; one warp.
INLINE void stage_unit(const u16 (&x)[kPer], float scale, u32 lane, float *to)
{
    float v[kPer], sum = 0.f;
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        v[i] = bf16_f32(x[i]);
        sum += v[i] * v[i];
    }
    scale /= sqrtf(warp_sum(sum) + 1e-6f);
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = i * 32 + lane;
        if (at < 4 * kRows)
            to[at / kRows * kStride + at % kRows] = v[i] * scale;
    }
}

// The n tokens that were loaded, for head j, to places from `to` on. With AHEAD numbers of tokens that are not there
// are made too: without branches the threads' exponentials overlap.
INLINE void stage(const gated_delta_params &p, const Raw &raw, int to, int n, int j, float decay, Staged &s)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int e = 0; e < kEachUnit; e++) {
        int t = e * 4 + warp;
        if (t < n) {
            stage_unit(raw.q[e], 1.f / sqrtf((float)KDIM), lane, s.q[to + t]);
            stage_unit(raw.k[e], 1.f, lane, s.k[to + t]);
        }
    }
#pragma unroll
    for (int e = 0; e < kEachV; e++)
        s.v[to + (e * 128 + threadIdx.x) / kBlock][(e * 128 + threadIdx.x) % kBlock] = bf16_f32(raw.v[e]);
#pragma unroll
    for (int e = 0; CHANNELS && e < kEachKeep; e++) {
        int t = (e * 128 + threadIdx.x) / (4 * kRows), at = (e * 128 + threadIdx.x) % (4 * kRows);
        if (AHEAD || t < n)
            s.keeps[to + t][at / kRows * kStride + at % kRows] =
                at < KDIM ? kept(raw.a[e], __ldg(p.dt_bias + j * KDIM + at), decay) : 0.f;
    }
    int t = threadIdx.x;
    if (t < n) {
        if constexpr (!CHANNELS)
            s.keep[to + t] = kept(raw.a[0], __ldg(p.dt_bias + j), decay);
        s.beta[to + t] = 1.f / (1.f + expf(-bf16_f32(raw.b)));
        if constexpr (BEHIND)
            s.behind[to + t] = raw.behind;
    }
}

// One token: the thread's part of S, and y of its columns.
INLINE void step(const Staged &in, int t, u32 part, u32 col, float (&s)[COLS][kRows], float (&y)[COLS])
{
    const float *k = in.k[t] + part * kStride, *q = in.q[t] + part * kStride;
    const float *keeps = in.keeps[CHANNELS ? t : 0] + (CHANNELS ? part * kStride : 0);
    float keep = CHANNELS ? 1.f : in.keep[t], beta = in.beta[t], d[COLS], sum[COLS][4];
#pragma unroll
    for (int c = 0; c < COLS; c++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[c][e] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < kRows; i++) {
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            if constexpr (CHANNELS)
                s[c][i] *= keeps[i];
            sum[c][i % 4] = fmaf(k[i], s[c][i], sum[c][i % 4]);
        }
    }
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        d[c] = beta * (in.v[t][col + c] - keep * column_sum(sum[c]));
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[c][e] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < kRows; i++) {
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            s[c][i] = fmaf(k[i], d[c], CHANNELS ? s[c][i] : keep * s[c][i]);
            sum[c][i % 4] = fmaf(q[i], s[c][i], sum[c][i % 4]);
        }
    }
#pragma unroll
    for (int c = 0; c < COLS; c++)
        y[c] = column_sum(sum[c]);
}

KERNEL __launch_bounds__(128) gated_delta(const __grid_constant__ gated_delta_params p)
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
    bool mine = first + col < VDIM;
    i64 at = (i64)j * KDIM * VDIM + first + col;
    float s[COLS][kRows], y[COLS];
    Raw raw;
    float decay = LOG_DECAY ? -expf(__ldg(p.decay + j)) : __ldg(p.decay + j);
    load_state(mine && slot >= 0 ? p.state + slot * p.state_stride + at : nullptr, part, s);
    pdl_go();
    pdl_wait();
    if (AHEAD)
        load(p, begin, min(end - begin, TOKENS), j, first, raw);
    for (int t0 = begin; t0 < end; t0 += TOKENS) {
        int n = min(end - t0, TOKENS);
        __syncthreads();
#pragma unroll 1
        for (int t = 0; t < n; t += kPiece) {
            if (!AHEAD)
                load(p, t0 + t, min(n - t, kPiece), j, first, raw);
            stage(p, raw, t, min(n - t, kPiece), j, decay, in);
        }
        __syncthreads();
        if (AHEAD && t0 + TOKENS < end)
            load(p, t0 + TOKENS, min(end - t0 - TOKENS, TOKENS), j, first, raw);
        for (int t = 0; t < n; t++) {
            step(in, t, part, col, s, y);
            u16 *to = p.y + (i64)(t0 + t) * p.y_stride + j * VDIM + first + col;
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
        store_state(p.state + p.state_to[q] * p.state_stride + at, part, s);
}
