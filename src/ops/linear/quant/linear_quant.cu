// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     for few tokens, W in quantised
// tiles (linear_quant.h)
//
// x [tokens, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]). quant_rows.cuh makes the products.
// With TOKENS (1, 2, 4) every CTA first makes the norm in front of it, of up to so many tokens (linear_norm_rows.cuh).
// The products then read x * n from shared memory, behind the rings.
// Grid: RESIDENT CTAs per SM, all resident at the same time. Groups of 16 rows (8 with HALF or PAIR) are dealt out to
// them in turn. A warp's stream of copies goes from one group to the next without a stop; it begins before pdl_wait().
// With one tile of tokens a group's bias and residual are loaded in front of its product.
// Bytes: those of the tiles, 0.56 per weight for Q4_0; the roof is memory bandwidth.
//
// History. At first each warp held two to three units in registers, each group had a CTA of its own, and the 8 columns
// of a product were 8 tokens. An H200 then read Q4_K at 1.8 TB/s and FP8 at 3.2 TB/s (8B gate+up, 1 token). Q4_K took
// 296 instructions for 16 rows x 128 columns. Memory delivers that many weights in 64 clocks of an SM, so the SM would
// have had to execute more than four per clock. The loop had 591 instructions: 142 were logic and 54 shifts, 64 HFMA2
// made exact bf16 of nibbles, and 96 FADD, FMUL and PRMT made scales of bytes, the same ones in four lanes. Now the
// 16 rows x 128 columns take 150 instructions: nibbles are bf16 as soon as they are cut out, and scales are made once,
// because a lane makes only those of its own chunk.
//
//   8B, 1 token, us per call in a graph of 48 (H200)      qkv    o    gate+up    down    head (Q4_K, Q6_K)
//   Q4_K: one CTA per group, units in registers          10.2   6.9    31.3      14.7     172.6   197.6
//         today's arithmetic, one CTA per group           8.4   7.1    20.2      15.1     141.3   202.1
//         2 resident CTAs of 8 warps per SM               8.8   5.9    19.2      10.8     112.1   159.4
//         4 CTAs of 4 warps                               7.0   6.4    17.8      12.8      89.5   150.2
//         6 CTAs of 4 warps                               7.9   6.3    18.6      12.3      95.1   155.0
// So CTAs have 4 warps if there are many groups, else 8. Programmatic launches change nothing as long as the rings fill
// the shared memory; with room for a third CTA per SM gate+up took 23.4 (linear_quant_cuda.c says why).
// Template: BITS, OFFSET, FORM, K, WARPS, TILES (of 8 tokens), SLOTS, STAGES, RESIDENT, HALF, PAIR (0 none, 1 silu,
// 2 gelu), OUT_F32, BIAS, RESIDUAL, TOKENS (rows of x in shared memory; 0: x is as it shall be), PLUS_ONE.
#include "quant_rows.cuh"
#include "linear_order.cuh"
constexpr int GROUPS = 1;
#include "linear_finish.cuh"
#include "linear_params.h"
#if TOKENS
// The lanes that load 16 bytes (with halves 8) at a time have x of one chunk or two, of two tokens (four).
constexpr int kNormPad = kHalves ? NORM_PAD / 2 : NORM_PAD;
#include "linear_norm_rows.cuh"
static_assert(TILES == 1 && TOKENS <= kColumns, "a lane has the columns 2 q and 2 q + 1");
#endif

KERNEL __launch_bounds__(WARPS * 32, RESIDENT) linear_quant(const __grid_constant__ linear_params p)
{
    constexpr bool kBeside = TILES == 1 && kColumns * kRowsOut <= WARPS * 32;
    constexpr int kBuffers = TILES == 1 ? 2 : 1; // with two, a group's sums are read while the next group's are made
    __shared__ WarpSums sums[kBuffers];
    extern __shared__ __align__(128) u8 shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    int groups = (p.rows + kGroupRows - 1) / kGroupRows, tiles = (p.rows + 7) / 8;
    auto aim = [&](int group, const u8 *&low, u32 &apart) {
        int first = group * kGroupTiles;
        low = (const u8 *)p.w + first * kTileBytes;
        // in place of a tile beyond the last the last is read again; its sums are thrown away
        apart = (PAIR ? tiles : min(1, tiles - 1 - first)) * (u32)kTileBytes;
    };
    auto stream = pair_stream(aim, groups, shared);
    stream.begin();
#if TOKENS
    __shared__ NormSums squares;
    u16 *rows = (u16 *)(shared + WARPS * (STAGES * kStage));
    NormWeights norm;
    load_norm(p, norm);
#endif
    pdl_go();
    pdl_wait();

    Columns columns = columns_of(lane);
    const u16 *x[TILES];
#if TOKENS
    norm_rows(p, norm, rows, squares);
    x[0] = rows + min(g % kTokens, min(TOKENS, p.n_tokens) - 1) * kNormRow;
    float by[2]; // of the lane's columns 2 q and 2 q + 1
#pragma unroll
    for (int k = 0; k < 2; k++)
        by[k] = norm_factor(squares, min(lane % 4 * 2 + k, TOKENS - 1), p.eps);
#else
#pragma unroll
    for (int n = 0; n < TILES; n++)
        x[n] = p.x + (i64)min(n * 8 + g % kTokens, p.n_tokens - 1) * p.x_stride;
#endif
    int buffer = 0;
#pragma unroll 1
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        float acc[TILES][kAcc][4] = {}, c[TILES][4];
        Beside beside;
        if constexpr (kBeside) {
            load_bias(p, group * kGroupRows, beside);
            load_residual(p, group * kGroupRows, beside);
        }
#pragma unroll 1
        for (int step = 0; step < kSteps; step++) {
            pair_products(stream.wait(), step * WARPS + warp, columns, x, lane, acc);
            stream.next();
        }
        row_sums(acc, c);
#if TOKENS
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[0][i] *= by[i % 2];
#endif
        finish<kBeside>(p, c, group * kGroupRows, sums[buffer], beside);
        if (kBuffers == 1)
            __syncthreads();
        buffer = (buffer + 1) % kBuffers;
    }
}
