// Deterministic attention: a row's KV is cut at absolute multiples of CHUNK positions, each chunk is computed from an
// empty state, and the chunks' states are joined in rising order. Whether one CTA does them one after the other
// (prefill, long batches) or many do one each (few decodes) changes no bit: both use the first two functions below.
//
// A state is (m, l, o): the largest score times log2(e), the sum of 2^(score - m), that sum over V. Joining an empty
// one (-inf, 0, 0) changes nothing.
#include "attention_params.h"
#include "attention_sink.cuh"

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

// ---- one CTA a chunk ----

struct Chunks { // where states wait, [items][kv_heads][rows]
    float *o, *state; // [HEAD_DIM] each; m and l
    i32 kv_heads, rows; // rows of a tile, at most
    float v_scale; // FP8 V; else 1
};

// Rows are counted from the first of the tile.
INLINE i64 chunk_slot(const Chunks &c, i32 item, i32 head, i32 row)
{
    return ((i64)item * c.kv_heads + head) * c.rows + row;
}

// Stores a thread's two rows in their slots. The tile has n rows.
INLINE void store_chunk(const Chunks &c, i32 item, i32 head, const i32 (&row)[2], i32 n, const float *o,
                        const float *m, const float *l)
{
    int q = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row[h] >= n)
            continue;
        i64 slot = chunk_slot(c, item, head, row[h]);
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; j++)
            *(float2 *)(c.o + slot * HEAD_DIM + j * 8 + 2 * q) = make_float2(o[4 * j + 2 * h], o[4 * j + 2 * h + 1]);
        if (q == 0)
            *(float2 *)(c.state + slot * 2) = make_float2(m[h], l[h]);
    }
}

// A state of a row, with four columns of its sum over V.
struct Piece {
    float4 o;
    float2 ml;
};

INLINE Piece load_piece(const Chunks &c, i64 slot, int column)
{
    return {__ldcg((const float4 *)(c.o + slot * HEAD_DIM + column)), __ldcg((const float2 *)(c.state + slot * 2))};
}

INLINE void join_piece(Piece &x, const Piece &right)
{
    Joint j = join(x.ml.x, right.ml.x);
    x.ml = make_float2(j.m, joined(x.ml.y, right.ml.y, j));
    x.o = make_float4(joined(x.o.x, right.o.x, j), joined(x.o.y, right.o.y, j), joined(x.o.z, right.o.z, j),
                      joined(x.o.w, right.o.w, j));
}

// Stores columns [column, column + 4) of a row. kMixed: registers hold FP8 V, column 4 q + 2 e + x of 16 where BF16
// has column 8 x + 2 q + e.
template <bool kMixed> INLINE void store_piece(u16 *row, int column, const Piece &x, float v_scale, float sink)
{
    float inverse = row_factor(x.ml.x, x.ml.y, v_scale, sink), o[4] = {x.o.x, x.o.y, x.o.z, x.o.w};
    if constexpr (kMixed) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int d = column + i;
            row[(d & ~15) | (d & 6) << 1 | (d & 1) << 1 | (d >> 3 & 1)] = f32_bf16(o[i] * inverse);
        }
    } else {
        *(uint2 *)(row + column) = make_uint2(pack_bf16(o[0] * inverse, o[1] * inverse),
                                              pack_bf16(o[2] * inverse, o[3] * inverse));
    }
}

// `threads` threads join all chunks of rows [begin, end) of a tile and a head. out(row) is where a row goes, sink(row)
// its sink. The time is that of loads from L2, so each thread has up to kUnits * kDepth of them under way.
template <bool kMixed, typename Out, typename Sink>
INLINE void join_chunks(const Chunks &c, const attention_chunk_item &it, i32 head, i32 begin, i32 end, int thread,
                        int threads, Out out, Sink sink)
{
    constexpr int kPieces = HEAD_DIM / 4, kUnits = HEAD_DIM > 128 ? 1 : 2, kDepth = 4; // as registers allow
    i64 step = (i64)c.kv_heads * c.rows;
    int last = (end - begin) * kPieces - 1;
    for (int first = thread; first <= last; first += threads * kUnits) {
        i64 slot[kUnits];
        int row[kUnits], column[kUnits];
        Piece x[kUnits];
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
            int i = min(first + u * threads, last); // beyond the last: the last once more
            row[u] = begin + i / kPieces;
            column[u] = i % kPieces * 4;
            slot[u] = chunk_slot(c, it.first_slot, head, row[u]);
            x[u] = load_piece(c, slot[u], column[u]);
        }
#pragma unroll 1
        for (int k0 = 1; k0 < it.n_items; k0 += kDepth) {
            Piece next[kDepth][kUnits];
#pragma unroll
            for (int j = 0; j < kDepth; j++)
#pragma unroll
                for (int u = 0; u < kUnits; u++)
                    next[j][u] = load_piece(c, slot[u] + min(k0 + j, it.n_items - 1) * step, column[u]);
#pragma unroll
            for (int j = 0; j < kDepth; j++)
                if (k0 + j < it.n_items)
#pragma unroll
                    for (int u = 0; u < kUnits; u++)
                        join_piece(x[u], next[j][u]);
        }
#pragma unroll
        for (int u = 0; u < kUnits; u++)
            if (first + u * threads <= last)
                store_piece<kMixed>(out(row[u]), column[u], x[u], c.v_scale, sink(row[u]));
    }
}
