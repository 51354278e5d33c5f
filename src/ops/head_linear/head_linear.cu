// y[t, h] = ( rest | W[h] in ),  x[t, h] = ( in | rest )
//
// x [tokens, heads * (IN + REST)], y [tokens, heads * (REST + OUT)] bf16, W [heads, OUT, IN] bf16, row by row.
// Grid: x = 64 outputs, y = heads, z = 16 * TILES tokens; a CTA's four warps have 16 outputs each, and all of the CTA's
// tokens. The CTAs of the first outputs also copy `rest`. mma.sync m16n8k16 over steps of 32 columns: a lane loads 8
// neighbouring ones, so both operands have them in the same order, which a product does not depend on.
// Sums are in the order of steps for any number of tokens. Bytes: W once for 16 * TILES tokens (L2 has it for the
// others), x from L1 for three of four warps. Bound by W's bytes for few tokens.
// SPLIT (few tokens): a CTA has 16 outputs, and each of its warps every fourth step, so that four times as many CTAs
// stream W. The first steps' W is loaded before the turn (pdl_wait). The warps' sums are added in rising order.
// Template: IN, OUT, REST, TILES, SPLIT (with TILES 1), VEC (1: heads are rows of 16-byte vectors; 0: elements are
// loaded one by one).
#include "head_linear_params.h"

constexpr int kXHead = IN + REST, kYHead = REST + OUT, kTokens = 16 * TILES;

// Columns [c, c + 8) of a row, zeros behind its end, or where it is not there.
INLINE uint4 columns(const u16 *row, int c, bool there)
{
    if (VEC)
        return there && c < IN ? load16(row + c) : make_uint4(0, 0, 0, 0);
    u32 word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = c + 2 * i;
        u32 low = there && at < IN ? row[at] : 0, high = there && at + 1 < IN ? row[at + 1] : 0;
        word[i] = low | high << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

INLINE void copy_rest(const head_linear_params &p, i32 token0)
{
    i64 head = blockIdx.y;
    for (int i = threadIdx.x; i < kTokens * REST; i += 128) {
        i32 t = token0 + i / (REST ? REST : 1), c = i % (REST ? REST : 1);
        if (t < p.n_tokens)
            p.y[(i64)t * p.y_stride + head * kYHead + c] = p.x[(i64)t * p.x_stride + head * kXHead + IN + c];
    }
}

INLINE void store(const head_linear_params &p, i32 t, int out, float v)
{
    if (t < p.n_tokens && out < OUT)
        p.y[(i64)t * p.y_stride + (i64)blockIdx.y * kYHead + REST + out] = f32_bf16(v);
}

// A step of 32 columns of 16 outputs, for 16 tokens from `token` on. b: the outputs' columns.
INLINE void add_step(const head_linear_params &p, float (&acc)[2][4], const uint4 (&b)[2], const u16 *x, i32 token,
                     int c)
{
    i32 low = token + threadIdx.x % 32 / 4, high = low + 8;
    uint4 a = columns(x + (i64)min(low, p.n_tokens - 1) * p.x_stride, c, low < p.n_tokens);
    uint4 d = columns(x + (i64)min(high, p.n_tokens - 1) * p.x_stride, c, high < p.n_tokens);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        mma_bf16(acc[n], a.x, d.x, a.y, d.y, b[n].x, b[n].y);
        mma_bf16(acc[n], a.z, d.z, a.w, d.w, b[n].z, b[n].w);
    }
}

INLINE void load_step(uint4 (&b)[2], const u16 *w, int out0, int c)
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int out = out0 + n * 8 + threadIdx.x % 32 / 4;
        b[n] = columns(w + (i64)min(out, OUT - 1) * IN, c, out < OUT);
    }
}

#if SPLIT
INLINE void multiply(const head_linear_params &p)
{
    constexpr int kSteps = (IN + 127) / 128, kAhead = kSteps < 4 ? kSteps : 4; // steps of a warp; that it loads at once
    __shared__ float part[4][2][4][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, out0 = blockIdx.x * 16;
    i32 token0 = blockIdx.z * 16;
    const u16 *x = p.x + (i64)blockIdx.y * kXHead, *w = p.w + (i64)blockIdx.y * OUT * IN;
    float acc[2][4] = {};
    uint4 b[kAhead][2];
#pragma unroll
    for (int i = 0; i < kAhead; i++)
        load_step(b[i], w, out0, (i * 4 + warp) * 32 + lane % 4 * 8);
    pdl_go();
    pdl_wait();
    if (REST && blockIdx.x == 0)
        copy_rest(p, token0);
#pragma unroll 1
    for (int s = 0; s < kSteps; s += kAhead) {
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            int c = ((s + i) * 4 + warp) * 32 + lane % 4 * 8;
            if (s > 0)
                load_step(b[i], w, out0, c);
            add_step(p, acc, b[i], x, token0, c);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            part[warp][n][e][lane] = acc[n][e];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 2; n++) { // warp e adds element e of each lane
        float sum = 0.f;
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum += part[k][n][warp][lane];
        store(p, token0 + lane / 4 + warp / 2 * 8, out0 + n * 8 + lane % 4 * 2 + warp % 2, sum);
    }
}
#else
INLINE void multiply(const head_linear_params &p)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i32 token0 = blockIdx.z * kTokens, out0 = blockIdx.x * 64 + warp * 16;
    const u16 *x = p.x + (i64)blockIdx.y * kXHead, *w = p.w + (i64)blockIdx.y * OUT * IN;
    float acc[TILES][2][4] = {};
    pdl_go();
    pdl_wait();
    if (REST && blockIdx.x == 0)
        copy_rest(p, token0);
#pragma unroll 4
    for (int k = 0; k < IN; k += 32) {
        int c = k + lane % 4 * 8;
        uint4 b[2];
        load_step(b, w, out0, c);
#pragma unroll
        for (int m = 0; m < TILES; m++)
            add_step(p, acc[m], b, x, token0 + m * 16, c);
    }
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                store(p, token0 + m * 16 + lane / 4 + e / 2 * 8, out0 + n * 8 + lane % 4 * 2 + e % 2, acc[m][n][e]);
}
#endif

KERNEL __launch_bounds__(128) head_linear(const __grid_constant__ head_linear_params p)
{
    multiply(p);
}
