// y[t, :] += scale * B_k (A_k x[t, :]) for the tokens t of an item, which all have adapter k
//
//   x [tokens, cols], A [ranks, cols], B [ranks, rows], y [tokens, rows] bf16; sums fp32
//
// Grid: (any multiple of SPLIT CTAs, items, parts). An item is up to 16 tokens of one adapter
// (lora_cuda.c). The CTAs of an item and part do this:
//
//   1. s[t, j] = A[j, :] . x[t, :]. mma m16n8k16: 16 rows of A times 8 tokens, twice. Chunks of 32 columns are dealt
//      out to 8 units of 8 warps. Each of SPLIT CTAs makes a unit; SPLIT 1: a CTA makes all of them in turn. A lane
//      reads 16 contiguous bytes of a row: elements 8 q .. 8 q + 7 of quad lane q serve as k = 2q, 2q+1, 2q+8, 2q+9
//      of two steps, for A and x alike. Sums of the warps meet in shared memory, those of the units there or through
//      the cluster, both in rising order: SPLIT changes no bit.
//   2. y += scale * s B. 16 tokens times 64 columns a warp: s is the 16-row operand, in two bf16 pieces (high and low)
//      so that it is not rounded. Lane (g, q) reads 16 bytes at columns 8 g .. 8 g + 7 of rows 4 q .. 4 q + 3 of B.
//      As tile c of 8, columns 8 n + c of the 64 stand for n, so that a lane has 16 neighbouring columns of y.
//
// So each sum has one order, whatever else is in the batch. Which tokens have which adapter is in the plan; A, B and
// their ranks never change: a captured graph serves all steps of a size.
// Bytes: 2 rank (cols + rows) an adapter, and x and y. A few tokens are bound by latency: three barriers.
// Template: SPLIT (1, or 8: the size of the cluster), VEC (8: rows are 16-byte vectors; 1: any).
#include "lora_params.h"
#if SPLIT > 1
#include "ptx_sm90.cuh"
#endif

constexpr i32 kWarps = 8, kUnits = 8, kSumRow = 20; // kSumRow: floats, 16 ranks of a token and 4 that shift banks

// Elements [at, at + 8) of a row of n, zeros behind its end.
INLINE uint4 load8(const u16 *row, i32 at, i32 n)
{
    if constexpr (VEC == 8) {
        return at < n ? load16(row + at) : make_uint4(0, 0, 0, 0);
    } else {
        u32 v[4];
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            u32 low = at + 2 * i < n ? row[at + 2 * i] : 0, high = at + 2 * i + 1 < n ? row[at + 2 * i + 1] : 0;
            v[i] = low | high << 16;
        }
        return make_uint4(v[0], v[1], v[2], v[3]);
    }
}

// y[at .. at + 8) += v, as far as the row goes.
INLINE void add8(u16 *row, i32 at, i32 n, const float (&v)[8])
{
    if constexpr (VEC == 8) {
        if (at >= n)
            return;
        f32x8 y = unpack8(load16(row + at));
#pragma unroll
        for (i32 i = 0; i < 8; i++)
            y.v[i] += v[i];
        store16(row + at, pack8(y));
    } else {
#pragma unroll
        for (i32 i = 0; i < 8; i++)
            if (at + i < n)
                row[at + i] = f32_bf16(bf16_f32(row[at + i]) + v[i]);
    }
}

struct Work {
    const u16 *a, *b; // the adapter's own rows
    i32 rank, rows, cols, n;
    i32 unit; // the first of kUnits parts of step 1 that this CTA makes; it makes kUnits / SPLIT of them
};

// The first vectors of A and of B that a lane needs. They are loaded before the kernel in front has ended.
struct Ahead {
    uint4 low, high, b[4];
};

// Rows j0 + g and j0 + 8 + g of A from column k + 8 q on.
INLINE void load_a(const Work &w, i32 j0, i32 k, uint4 &low, uint4 &high)
{
    i32 g = threadIdx.x % 32 / 4, at = k + threadIdx.x % 4 * 8;
    low = load8(w.a + (i64)min(j0 + g, w.rank - 1) * w.cols, at, w.cols);
    high = load8(w.a + (i64)min(j0 + 8 + g, w.rank - 1) * w.cols, at, w.cols);
}

// Rows j0 + 4 q .. j0 + 4 q + 3 of B from column first + 8 g on; zeros behind the rank.
INLINE void load_b(const Work &w, i32 j0, i32 first, uint4 (&b)[4])
{
    i32 g = threadIdx.x % 32 / 4, j = j0 + threadIdx.x % 4 * 4;
#pragma unroll
    for (i32 i = 0; i < 4; i++)
        b[i] = j + i < w.rank ? load8(w.b + (i64)(j + i) * w.rows, first + 8 * g, w.rows) : make_uint4(0, 0, 0, 0);
}

INLINE i32 first_chunk(i32 unit) { return (unit * kWarps + (i32)threadIdx.x / 32) * 32; }
INLINE i32 first_columns() { return (blockIdx.x * kWarps + threadIdx.x / 32) * 64; }

INLINE void load_ahead(const Work &w, Ahead &a)
{
    load_a(w, 0, first_chunk(w.unit), a.low, a.high);
    load_b(w, 0, first_columns(), a.b);
}

// Sums of this warp's chunks of a unit: 16 rows of A from j0 on, times the item's tokens, to sums[token * kSumRow +
// row].
INLINE void multiply(const lora_params &p, const Work &w, const Ahead &ahead, i32 j0, i32 unit, const i32 *tokens,
                     float *sums)
{
    i32 lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, begin = first_chunk(unit);
    const u16 *x[2] = {p.x + (i64)tokens[g] * p.x_stride, p.x + (i64)tokens[8 + g] * p.x_stride};
    float c[2][4] = {};
    bool both = w.n > 8;
#pragma unroll 4
    for (i32 k = begin; k < w.cols; k += kUnits * kWarps * 32) {
        uint4 l = ahead.low, h = ahead.high;
        if (j0 > 0 || k > begin || unit > w.unit)
            load_a(w, j0, k, l, h);
        uint4 b = load8(x[0], k + q * 8, w.cols);
        mma_bf16(c[0], l.x, h.x, l.y, h.y, b.x, b.y);
        mma_bf16(c[0], l.z, h.z, l.w, h.w, b.z, b.w);
        if (both) {
            b = load8(x[1], k + q * 8, w.cols);
            mma_bf16(c[1], l.x, h.x, l.y, h.y, b.x, b.y);
            mma_bf16(c[1], l.z, h.z, l.w, h.w, b.z, b.w);
        }
    }
#pragma unroll
    for (i32 i = 0; i < 2; i++) {
        float *to = sums + (i * 8 + 2 * q) * kSumRow + g;
        to[0] = c[i][0];
        to[kSumRow] = c[i][1];
        to[8] = c[i][2];
        to[kSumRow + 8] = c[i][3];
    }
}

// Step 1 of this CTA: part[token * sum_stride + j], zeros behind the rank.
INLINE void shrink(const lora_params &p, const Work &w, const Ahead &ahead, const i32 *tokens, float *part)
{
    __shared__ float sums[kWarps][LORA_ITEM_TOKENS * kSumRow];
    i32 token = threadIdx.x / 16, j = threadIdx.x % 16;
    for (i32 j0 = 0; j0 < w.rank; j0 += 16) {
        float total = 0.f;
        for (i32 unit = w.unit; unit < w.unit + kUnits / SPLIT && unit * kWarps * 32 < w.cols; unit++) {
            multiply(p, w, ahead, j0, unit, tokens, sums[threadIdx.x / 32]);
            __syncthreads();
            float sum = 0.f;
#pragma unroll
            for (i32 i = 0; i < kWarps; i++)
                sum += sums[i][token * kSumRow + j];
            total += sum;
            __syncthreads();
        }
        part[token * p.sum_stride + j0 + j] = j0 + j < w.rank ? total : 0.f;
    }
}

// A barrier for all threads that share the sums.
INLINE void join_sync()
{
#if SPLIT > 1
    cluster_sync<SPLIT>();
#else
    __syncthreads();
#endif
}

// The sums of all CTAs, times `scale`, from `part` to `whole`.
INLINE void join(const lora_params &p, const Work &w, float scale, const float *part, float *whole)
{
    i32 vectors = (w.rank + 15) / 16 * 4;
    for (i32 i = threadIdx.x; i < LORA_ITEM_TOKENS * vectors; i += kWarps * 32) {
        i32 at = i / vectors * p.sum_stride + i % vectors * 4;
        float4 from[SPLIT], sum;
#pragma unroll
        for (i32 r = 0; r < SPLIT; r++)
#if SPLIT > 1
            from[r] = load_peer16(part + at, r);
#else
            from[r] = *(const float4 *)(part + at);
#endif
        sum = from[0];
#pragma unroll
        for (i32 r = 1; r < SPLIT; r++)
            sum = make_float4(sum.x + from[r].x, sum.y + from[r].y, sum.z + from[r].z, sum.w + from[r].w);
        *(float4 *)(whole + at) = make_float4(scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w);
    }
}

// Two values as bf16, and what is left of them as bf16.
INLINE void split_bf16(float a, float b, u32 &high, u32 &low)
{
    high = pack_bf16(a, b);
    low = pack_bf16(a - bf16_low(high), b - bf16_high(high));
}

// The low and the high halves of words a and b.
INLINE u32 low_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
INLINE u32 high_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }

// acc[c] += s[16 tokens, 16 ranks from j0 on] B[those ranks, columns first + 8 n + c], of which the lane holds b.
INLINE void multiply_add(const float *s, i32 stride, i32 j0, const uint4 (&b)[4], float (&acc)[8][4])
{
    i32 lane = threadIdx.x % 32, g = lane / 4, j = j0 + lane % 4 * 4;
    float4 one = *(const float4 *)(s + g * stride + j), two = *(const float4 *)(s + (g + 8) * stride + j);
    u32 high[4], low[4], word[4][4];
    split_bf16(one.x, one.y, high[0], low[0]);
    split_bf16(two.x, two.y, high[1], low[1]);
    split_bf16(one.z, one.w, high[2], low[2]);
    split_bf16(two.z, two.w, high[3], low[3]);
#pragma unroll
    for (i32 i = 0; i < 4; i++)
        word[i][0] = b[i].x, word[i][1] = b[i].y, word[i][2] = b[i].z, word[i][3] = b[i].w;
#pragma unroll
    for (i32 c = 0; c < 8; c++) {
        i32 k = c / 2;
        u32 b0 = c % 2 ? high_halves(word[0][k], word[1][k]) : low_halves(word[0][k], word[1][k]),
            b1 = c % 2 ? high_halves(word[2][k], word[3][k]) : low_halves(word[2][k], word[3][k]);
        mma_bf16(acc[c], high[0], high[1], high[2], high[3], b0, b1);
        mma_bf16(acc[c], low[0], low[1], low[2], low[3], b0, b1);
    }
}

// Step 2: this CTA's columns, 64 a warp at a time.
INLINE void expand(const lora_params &p, const lora_part_params &part, const Work &w, const Ahead &ahead,
                   const i32 *tokens, const float *s)
{
    i32 lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, begin = first_columns();
    for (i32 first = begin; first < w.rows; first += gridDim.x * kWarps * 64) {
        float acc[8][4] = {};
        for (i32 j0 = 0; j0 < w.rank; j0 += 16) {
            uint4 b[4] = {ahead.b[0], ahead.b[1], ahead.b[2], ahead.b[3]};
            if (j0 > 0 || first > begin)
                load_b(w, j0, first, b);
            multiply_add(s, p.sum_stride, j0, b, acc);
        }
#pragma unroll
        for (i32 half = 0; half < 2; half++) { // tokens g and g + 8
            if (g + 8 * half >= w.n)
                continue;
            u16 *y = part.y + (i64)tokens[g + 8 * half] * part.y_stride;
#pragma unroll
            for (i32 k = 0; k < 2; k++) { // columns 16 q .. and 16 q + 8 ..
                float v[8];
#pragma unroll
                for (i32 c = 0; c < 8; c++)
                    v[c] = acc[c][2 * half + k];
                add8(y, first + 16 * q + 8 * k, w.rows, v);
            }
        }
    }
}

KERNEL __launch_bounds__(kWarps * 32) lora(const __grid_constant__ lora_params p)
{
    extern __shared__ __align__(16) float shared[];
    __shared__ i32 tokens[LORA_ITEM_TOKENS];
    float *part_sums = shared, *whole = shared + LORA_ITEM_TOKENS * p.sum_stride;
    const lora_part_params &part = p.part[blockIdx.z];
    lora_item item = p.items[blockIdx.y]; // of the step's block, which was copied before the first kernel began
    i32 first = item.n > 0 ? part.first[item.adapter - 1] : 0, rank = item.n > 0 ? part.first[item.adapter] - first : 0;
    // CTAs without work leave at once. Those of the first item stay, so that this kernel does not end before the one in
    // front of it.
    if (rank == 0) {
        pdl_go();
        if (blockIdx.y == 0)
            pdl_wait();
        return;
    }
    if (threadIdx.x < LORA_ITEM_TOKENS) // beyond the last: the first again, whose sums are thrown away
        tokens[threadIdx.x] = p.tokens[item.first + (threadIdx.x < item.n ? threadIdx.x : 0)];
    Work w = {part.a + (i64)first * p.cols,
              part.b + (i64)first * part.rows,
              rank,
              part.rows,
              p.cols,
              item.n,
              SPLIT > 1 ? (i32)blockIdx.x % SPLIT : 0};
    Ahead ahead;
    load_ahead(w, ahead);
    pdl_go();
    __syncthreads();
    pdl_wait();
    shrink(p, w, ahead, tokens, part_sums);
    join_sync();
    join(p, w, part.scale[item.adapter - 1], part_sums, whole);
    join_sync(); // also: a CTA's shared memory outlives its peers' reads
    expand(p, part, w, ahead, tokens, whole);
}
