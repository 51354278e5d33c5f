// The convolution of short_conv.cu, with the same bits, for steps of many tokens.
//
// Grid: first VECS = N / 8 threads for each sequence, then VECS for each run of RUN tokens; a thread has 8 channels.
// The threads of a sequence do its first TAPS - 1 tokens, which need the state, and write the state behind its last
// token: nobody else reads the slot, which may be the one that the sequence writes. The threads of a run load its rows
// of x and the TAPS - 1 before them with 16-byte loads, all at once, and compute its other tokens; v of earlier tokens
// is in registers. Bytes: those of short_conv.cu; rows in front of a run come from L2 a second time. Batch, taps and
// state are read before the kernel's turn (ops/gated_delta/state_columns.cuh).
// Template: N, TAPS, SILU, BIAS, BEHIND, RUN.
#include "short_conv_params.h"

constexpr int kBefore = TAPS - 1, kVecs = N / 8;

INLINE f32x8 load_f32x8(const float *p)
{
    float4 a = __ldcg((const float4 *)p), b = __ldcg((const float4 *)p + 1);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
INLINE void store_f32x8(float *p, const f32x8 &v)
{
    ((float4 *)p)[0] = make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
    ((float4 *)p)[1] = make_float4(v.v[4], v.v[5], v.v[6], v.v[7]);
}

// The parts of a row of x that make its v.
struct Row {
    uint4 a, u; // v, or b and u
};
INLINE Row load_row(const short_conv_params &p, int t, u32 i)
{
    const u16 *x = p.x + (i64)t * p.x_stride + i;
    Row row;
    row.a = load16(x);
    if constexpr (!SILU)
        row.u = load16(x + 2 * N);
    return row;
}
INLINE f32x8 value(const Row &row)
{
    f32x8 v = unpack8(row.a);
    if constexpr (!SILU) {
        f32x8 u = unpack8(row.u);
#pragma unroll
        for (int c = 0; c < 8; c++)
            v.v[c] *= u.v[c];
    }
    return v;
}

struct Taps {
    float w[8][TAPS], bias[8];
};
INLINE void load_taps(const short_conv_params &p, u32 i, Taps &taps)
{
#pragma unroll
    for (int e = 0; e < 8 * TAPS / 4; e++) {
        float4 w = __ldg((const float4 *)(p.w + i * TAPS) + e);
        taps.w[e * 4 / TAPS][e * 4 % TAPS] = w.x;
        taps.w[(e * 4 + 1) / TAPS][(e * 4 + 1) % TAPS] = w.y;
        taps.w[(e * 4 + 2) / TAPS][(e * 4 + 2) % TAPS] = w.z;
        taps.w[(e * 4 + 3) / TAPS][(e * 4 + 3) % TAPS] = w.w;
    }
#pragma unroll
    for (int c = 0; c < 8; c++)
        taps.bias[c] = BIAS ? __ldg(p.bias + i + c) : 0.f;
}

// Writes token t's output; v[j] is what tap j multiplies. gate: c of the token.
INLINE void output(const short_conv_params &p, int t, u32 i, const Taps &taps, const f32x8 (&v)[TAPS], uint4 gate)
{
    f32x8 y, by = unpack8(gate);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float sum = taps.bias[c];
#pragma unroll
        for (int j = 0; j < TAPS; j++)
            sum = fmaf(taps.w[c][j], v[j].v[c], sum);
        y.v[c] = SILU ? silu(sum) : by.v[c] * sum;
    }
    store16(p.y + (i64)t * p.y_stride + i, pack8(y));
}
INLINE uint4 load_gate(const short_conv_params &p, int t, u32 i)
{
    return SILU ? make_uint4(0, 0, 0, 0) : load16(p.x + (i64)t * p.x_stride + N + i);
}

// Writes the state behind a token; v[j] is what its tap j multiplies.
INLINE void store_state(const short_conv_params &p, int slot, u32 i, const f32x8 (&v)[TAPS])
{
#pragma unroll
    for (int j = 0; j < kBefore; j++)
        store_f32x8(p.state + slot * p.state_stride + j * N + i, v[j + 1]);
}

// The first tokens of sequence s, and its state.
INLINE void first_tokens(const short_conv_params &p, int s, u32 i)
{
    int begin = p.q_start[s], end = p.q_start[s + 1], from = p.state_from[s], last_slot = p.state_to[s];
    bool there = begin < end && (s == 0 || p.seq_of[begin] == s); // else a padding sequence
    Taps taps;
    f32x8 v[TAPS], zero = {{0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}};
    load_taps(p, i, taps);
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        v[j] = j > 0 && there && from >= 0 ? load_f32x8(p.state + from * p.state_stride + (j - 1) * N + i) : zero;
    pdl_go();
    pdl_wait();
    if (!there)
        return;
#pragma unroll
    for (int k = 0; k < (kBefore > 1 ? kBefore : 1); k++) {
        if (k >= end - begin)
            break;
#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            v[j] = v[j + 1];
        v[TAPS - 1] = value(load_row(p, begin + k, i));
        output(p, begin + k, i, taps, v, load_gate(p, begin + k, i));
        if constexpr (BEHIND)
            if (p.state_behind[begin + k] >= 0)
                store_state(p, p.state_behind[begin + k], i, v);
    }
    if (end - begin > kBefore) {
#pragma unroll
        for (int j = 0; j < kBefore; j++)
            v[j + 1] = value(load_row(p, end - kBefore + j, i));
    }
    store_state(p, last_slot, i, v);
}

// The tokens from t0 on that are behind the first of their sequences.
INLINE void run_tokens(const short_conv_params &p, int t0, u32 i)
{
    int last = p.n_tokens - 1, s[RUN], behind[RUN];
    u32 mine = 0; // bits of tokens
#pragma unroll
    for (int e = 0; e < RUN; e++) {
        s[e] = t0 + e <= last ? p.seq_of[t0 + e] : 0;
        behind[e] = BEHIND && t0 + e <= last ? p.state_behind[t0 + e] : -1;
    }
    Taps taps;
    load_taps(p, i, taps);
#pragma unroll
    for (int e = 0; e < RUN; e++) {
        int k = t0 + e - p.q_start[s[e]];
        mine |= (u32)(t0 + e <= last && t0 + e < p.q_start[s[e] + 1] && k > 0 && k >= kBefore) << e;
    }
    pdl_go();
    pdl_wait();
    if (!mine)
        return;
    Row row[kBefore + RUN];
    uint4 gate[RUN];
#pragma unroll
    for (int e = 0; e < kBefore + RUN; e++)
        row[e] = load_row(p, min(max(t0 + e - kBefore, 0), last), i);
#pragma unroll
    for (int e = 0; e < RUN; e++)
        gate[e] = load_gate(p, min(t0 + e, last), i);
    f32x8 v[TAPS];
#pragma unroll
    for (int e = 0; e < kBefore; e++)
        v[e + 1] = value(row[e]);
#pragma unroll
    for (int e = 0; e < RUN; e++) {
#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            v[j] = v[j + 1];
        v[TAPS - 1] = value(row[kBefore + e]);
        if (mine >> e & 1) {
            output(p, t0 + e, i, taps, v, gate[e]);
            if constexpr (BEHIND)
                if (behind[e] >= 0)
                    store_state(p, behind[e], i, v);
        }
    }
}

KERNEL __launch_bounds__(128) short_conv_runs(const __grid_constant__ short_conv_params p)
{
    u32 at = blockIdx.x * 128 + threadIdx.x, item = at / kVecs, i = at % kVecs * 8;
    if (item < (u32)p.n_seqs)
        first_tokens(p, (int)item, i);
    else
        run_tokens(p, (int)(item - p.n_seqs) * RUN, i);
}
