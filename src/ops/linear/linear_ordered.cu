// Like linear_small.cu, but with the order of sums of linear_order.cuh: its results for few tokens have the same bits
// as those of the GEMMs for many.
//
// x [tokens, K] bf16, W [rows, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]).
// The weights are the 16-row operand of mma m16n8k16, and eight tokens are the other. Warp s takes segment s of K. Its
// lanes copy chunks of 64 columns, weights and x, to a ring of SLOTS chunks in shared memory; ldmatrix gives the
// fragments of 16 neighbouring columns, as in the GEMMs. A warp waits for no other until its sums are done.
// Grid: one CTA for each group of 16 weight rows (HALF: 8; paired: 8 gate rows and the 8 up rows that belong to them),
// one warp for each segment. SLOTS chunks of weights are on their way before pdl_wait().
// Bytes: 2 * rows * K; the roof is memory bandwidth.
// Before, a lane read 16 bytes of a row into registers and got the columns of its fragments from the other lanes of the
// quad: 12 shuffles a kilobyte, and no more chunks in flight than registers and L1 had room for.
// Template: K, WARPS (= segments), TILES (of 8 tokens, 1 or 2), HALF, SLOTS, PAIR (0 none, 1 silu, 2 gelu), OUT_F32,
// BIAS, RESIDUAL.

#include "linear_order.cuh"
constexpr int kColumns = TILES * 8;
#include "linear_finish.cuh"
#include "linear_params.h"

constexpr int kRowsIn = HALF ? 8 : 16, kRowBytes = ORDERED_CHUNK * 2, kXSlot = kRowsIn * kRowBytes;
constexpr int kSlot = ORDERED_SLOT_BYTES(kRowsIn, kColumns); // x lies behind the weights, at kXSlot
static_assert(ORDERED_CHUNK == 64 && kSegmentGrain % ORDERED_CHUNK == 0, "eight pieces of 16 bytes a row");

// Piece c of row r: ldmatrix and cp.async both touch all banks.
INLINE u32 swizzled(int r, int c) { return r * kRowBytes + (c ^ (r & 7)) * 16; }

// Copies piece lane % 8 of rows lane / 8, + 4, ... of a chunk of columns from k on; zeros from row n on and behind
// `end`. `row(r)` is where a row begins.
template <int kRows, class Row> INLINE void fetch(u32 to, int k, int end, int n, Row row)
{
    int lane = threadIdx.x % 32, c = lane % 8;
    k += c * 8;
#pragma unroll
    for (int r = lane / 8; r < kRows; r += 4) {
        bool inside = k < end && r < n;
        copy_async16(to + swizzled(r, c), row(inside ? r : 0) + (inside ? k : 0), inside ? 16 : 0);
    }
}

// Adds the products of the chunk at `slot` in four steps of 16 columns.
INLINE void multiply(float (&c)[TILES][4], u32 slot)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) { // two steps: ldmatrix gives all four operands of x
        frag4 x[TILES], w[2];
#pragma unroll
        for (int n = 0; n < TILES; n++)
            x[n] = load_matrix4(slot + kXSlot + swizzled(n * 8 + lane % 8, half * 4 + lane / 8));
        if constexpr (HALF) {
            frag4 both = load_matrix4(slot + swizzled(lane % 8, half * 4 + lane / 8));
            w[0] = {both.r[0], 0, both.r[1], 0};
            w[1] = {both.r[2], 0, both.r[3], 0};
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++)
                w[i] = load_matrix4(slot + swizzled(lane % 16, half * 4 + i * 2 + lane / 16));
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
                mma_bf16(c[n], w[i].r[0], w[i].r[1], w[i].r[2], w[i].r[3], x[n].r[2 * i], x[n].r[2 * i + 1]);
    }
}

KERNEL __launch_bounds__(WARPS * 32) linear_ordered(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(128) char rings[];
    __shared__ WarpSums sums;
    static_assert(K % 8 == 0, "a piece of 16 bytes is all inside a row or all outside");
    int warp = threadIdx.x / 32, j0 = blockIdx.x * kRowsOut;
    int begin = segment_begin(warp, WARPS, K), end = min(segment_begin(warp + 1, WARPS, K), K);
    u32 ring = shared_address(rings) + warp * SLOTS * kSlot;
    // Rows beyond the last are the last row again; their sums are thrown away.
    auto w_row = [&](int r) {
        int j = min(j0 + (PAIR ? r % 8 : r), p.rows - 1);
        return (const u16 *)p.w + (i64)(PAIR && r >= 8 ? p.rows + j : j) * K;
    };
    auto x_row = [&](int r) { return p.x + (i64)r * p.x_stride; };
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
        if (begin + i * ORDERED_CHUNK < end)
            fetch<kRowsIn>(ring + i * kSlot, begin + i * ORDERED_CHUNK, end, kRowsIn, w_row);
    pdl_go();
    pdl_wait();
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        if (begin + i * ORDERED_CHUNK < end)
            fetch<kColumns>(ring + i * kSlot + kXSlot, begin + i * ORDERED_CHUNK, end, p.n_tokens, x_row);
        copy_async_commit(); // the first of these groups has all the weights, too
    }
    float c[TILES][4] = {};
    u32 slot = ring;
    for (int k = begin; k < end; k += ORDERED_CHUNK) {
        copy_async_wait<SLOTS - 1>();
        __syncwarp();
        multiply(c, slot);
        __syncwarp();
        int next = k + SLOTS * ORDERED_CHUNK;
        if (next < end) {
            fetch<kRowsIn>(slot, next, end, kRowsIn, w_row);
            fetch<kColumns>(slot + kXSlot, next, end, p.n_tokens, x_row);
        }
        copy_async_commit();
        slot = slot + kSlot < ring + SLOTS * kSlot ? slot + kSlot : ring;
    }
    finish(p, c, j0, sums);
}
