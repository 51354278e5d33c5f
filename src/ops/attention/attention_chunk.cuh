// Deterministic attention: a row's KV is cut at absolute multiples of CHUNK positions, each chunk is computed from an
// empty state, and the chunks' states are joined in rising order. Whether one CTA does them one after the other
// (prefill, long batches) or many do one each (few decodes) changes no bit: both use the first two functions below.
//
// A state is (m, l, o): the largest score times log2(e), the sum of 2^(score - m), that sum over V. Joining an empty
// one (-inf, 0, 0) changes nothing.
#include "attention_params.h"

struct Joint {
    float m, keep, add; // the maximum of both; the factors of the left and of the right state
};

INLINE Joint join(float m, float right)
{
    float top = fmaxf(m, right), base = top == -kInfinity ? 0.f : top;
    return {top, exp2_fast(m - base), exp2_fast(right - base)};
}

// l or o of both states. The rounding is spelled out, so that no two compilations contract it differently.
INLINE float joined(float left, float right, const Joint &j)
{
    return __fmaf_rn(left, j.keep, __fmul_rn(right, j.add));
}

// Adds a chunk to the total that a thread keeps of the chunks before it. `total` is O, in local memory because
// registers are scarce. Register 4 j + 2 h + e of o is row h, column 8 j + 2 (lane % 4) + e; l is the whole row's.
template <int kRegs> INLINE void add_chunk(float *total, float *tm, float *tl, const float *o, const float *m,
                                           const float *l, bool first)
{
    Joint j[2] = {join(tm[0], m[0]), join(tm[1], m[1])};
#pragma unroll
    for (int i = 0; i < kRegs; i++)
        total[i] = first ? o[i] : joined(total[i], o[i], j[i / 2 % 2]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        tl[h] = first ? l[h] : joined(tl[h], l[h], j[h]);
        tm[h] = first ? m[h] : j[h].m;
    }
}

// Joins the last chunk with the total; o, m and l become the row's.
template <int kRegs> INLINE void end_chunks(const float *total, const float *tm, const float *tl, float *o,
                                            float *m, float *l)
{
    Joint j[2] = {join(tm[0], m[0]), join(tm[1], m[1])};
#pragma unroll
    for (int i = 0; i < kRegs; i++)
        o[i] = joined(total[i], o[i], j[i / 2 % 2]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        l[h] = joined(tl[h], l[h], j[h]);
        m[h] = j[h].m;
    }
}

// ---- one CTA a chunk: decodes ----

struct Chunks { // where states wait, [items][kv_heads][GROUP]
    float *o, *state; // [HEAD_DIM] each; m and l
    i32 kv_heads;
    float v_scale; // FP8 V; else 1
};

INLINE i64 chunk_slot(const Chunks &c, i32 item, i32 head, i32 row)
{
    return ((i64)item * c.kv_heads + head) * GROUP + row;
}

// Stores a thread's two rows in their slots.
INLINE void store_chunk(const Chunks &c, i32 item, i32 head, const i32 (&row)[2], const float *o, const float *m,
                        const float *l)
{
    int q = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row[h] >= GROUP)
            continue;
        i64 slot = chunk_slot(c, item, head, row[h]);
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++)
            *(float2 *)(c.o + slot * HEAD_DIM + j * 8 + 2 * q) = make_float2(o[4 * j + 2 * h], o[4 * j + 2 * h + 1]);
        if (q == 0)
            *(float2 *)(c.state + slot * 2) = make_float2(m[h], l[h]);
    }
}

// `threads` threads join all chunks of rows [begin, end) of a head's group into out [GROUP][HEAD_DIM].
// kMixed: registers hold FP8 V, column 4 q + 2 e + x of 16 where BF16 has column 8 x + 2 q + e.
template <bool kMixed> INLINE void join_chunks(const Chunks &c, const attention_chunk_item &it, i32 head, i32 begin,
                                                i32 end, int thread, int threads, u16 *out)
{
    for (int i = thread; i < (end - begin) * HEAD_DIM; i += threads) {
        int row = begin + i / HEAD_DIM, d = i % HEAD_DIM;
        i64 slot = chunk_slot(c, it.first_item, head, row), step = (i64)c.kv_heads * GROUP;
        float m = __ldcg(c.state + slot * 2), l = __ldcg(c.state + slot * 2 + 1), o = __ldcg(c.o + slot * HEAD_DIM + d);
#pragma unroll 4
        for (int k = 1; k < it.n_items; k++) {
            slot += step;
            Joint j = join(m, __ldcg(c.state + slot * 2));
            l = joined(l, __ldcg(c.state + slot * 2 + 1), j);
            o = joined(o, __ldcg(c.o + slot * HEAD_DIM + d), j);
            m = j.m;
        }
        int column = kMixed ? (d & ~15) | (d & 6) << 1 | (d & 1) << 1 | (d >> 3 & 1) : d;
        out[row * HEAD_DIM + column] = f32_bf16(o * (l > 0.f ? c.v_scale / l : 0.f));
    }
}
