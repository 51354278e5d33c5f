// y[t, h] = ( rest | W[h] in ),  x[t, h] = ( in | rest )
//
// x [tokens, heads * (IN + REST)], y [tokens, heads * (REST + OUT)] bf16, W [heads, OUT, IN] bf16, row by row.
// Grid: x = 64 outputs, y = heads, z = 16 * TILES tokens; a CTA's four warps have 16 outputs each, and all of the CTA's
// tokens. The CTAs of the first outputs also copy `rest`. mma.sync m16n8k16 over steps of 32 columns: a lane loads 8
// neighbouring ones, so both operands have them in the same order, which a product does not depend on.
// Sums are in the order of steps for any number of tokens. Bytes: W once for 16 * TILES tokens (L2 has it for the
// others), x from L1 for three of four warps. Bound by W's bytes for few tokens.
// Template: IN, OUT, REST, TILES, VEC (1: heads are rows of 16-byte vectors; 0: elements are loaded one by one).
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

KERNEL __launch_bounds__(128) head_linear(const __grid_constant__ head_linear_params p)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    i32 token0 = blockIdx.z * kTokens, out0 = blockIdx.x * 64 + warp * 16;
    const u16 *x = p.x + (i64)blockIdx.y * kXHead, *w = p.w + (i64)blockIdx.y * OUT * IN;
    float acc[TILES][2][4] = {};
    pdl_go();
    pdl_wait();
    if (REST && blockIdx.x == 0)
        copy_rest(p, token0);
#pragma unroll 4
    for (int k = 0; k < IN; k += 32) {
        int c = k + quad * 8;
        uint4 b[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int out = out0 + n * 8 + group;
            b[n] = columns(w + (i64)min(out, OUT - 1) * IN, c, out < OUT);
        }
#pragma unroll
        for (int m = 0; m < TILES; m++) {
            i32 low = token0 + m * 16 + group, high = low + 8;
            uint4 a = columns(x + (i64)min(low, p.n_tokens - 1) * p.x_stride, c, low < p.n_tokens);
            uint4 d = columns(x + (i64)min(high, p.n_tokens - 1) * p.x_stride, c, high < p.n_tokens);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                mma_bf16(acc[m][n], a.x, d.x, a.y, d.y, b[n].x, b[n].y);
                mma_bf16(acc[m][n], a.z, d.z, a.w, d.w, b[n].z, b[n].w);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                i32 t = token0 + m * 16 + group + e / 2 * 8, out = out0 + n * 8 + quad * 2 + e % 2;
                if (t < p.n_tokens && out < OUT)
                    p.y[(i64)t * p.y_stride + (i64)blockIdx.y * kYHead + REST + out] = f32_bf16(acc[m][n][e]);
            }
}
