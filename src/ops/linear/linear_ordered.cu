// Like linear_small.cu, but with the order of sums of linear_order.cuh: its results for few tokens have the same bits
// as those of the GEMMs for many.
//
// x [tokens, K] bf16, W [rows, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]).
// The weights are the 16-row operand of mma m16n8k16, and eight tokens are the other. Warp s takes segment s of K. A
// lane reads 16 contiguous bytes of a row, so a quad holds 32 columns of it. The lane gets the columns of its fragments
// from the other lanes of the quad (transpose()), and a step then multiplies 16 neighbouring columns, as in the GEMMs.
// (linear_small.cu saves these 12 shuffles per kilobyte by permuting K.)
// Grid: one CTA for each group of 16 weight rows (HALF: 8; paired: 8 gate rows and the 8 up rows that belong to them),
// one warp for each segment. kPrefetch chunks of weights are loaded to registers before pdl_wait().
// Bytes: 2 * rows * K; the roof is memory bandwidth.
// Template: K, WARPS (= segments), TILES (of 8 tokens, 1 or 2), HALF, PAIR (0 none, 1 silu, 2 gelu), OUT_F32, BIAS,
// RESIDUAL.

#include "linear_order.cuh"
constexpr int kColumns = TILES * 8;
#include "linear_finish.cuh"
#include "linear_params.h"

constexpr int kSegmentUnits = ((K + kSegmentGrain - 1) / kSegmentGrain + WARPS - 1) / WARPS; // grains in the longest
constexpr int kChunks = (K + 31) / 32, kLongest = kSegmentUnits * kSegmentGrain / 32;
constexpr int kSteps = kLongest < kChunks ? kLongest : kChunks;
constexpr int kMost = HALF ? 16 : 8; // the most chunks of weights in flight

constexpr int largest_divisor(int n, int most)
{
    while (n % most)
        most--;
    return most;
}
// Loads run ahead only in a loop without branches. So the number of chunks in flight divides the number of steps, and
// only ragged segments are checked for their ends.
constexpr int kPrefetch = largest_divisor(kSteps, kMost);
constexpr int kAhead = kPrefetch % 8 == 0 && TILES == 1 ? 8 : kPrefetch % 4 == 0 ? 4 : kPrefetch; // chunks of x
constexpr bool kRagged = K % (kSegmentGrain * WARPS) != 0;
constexpr int kResident = 8 / WARPS; // CTAs an SM holds at least

// A 4 x 4 transpose over the lanes of a quad. Before, lane q holds columns 8 q .. 8 q + 7 of 32 in four registers;
// afterwards it holds columns 2 q + 8 i and 2 q + 8 i + 1 in register i.
INLINE void transpose(u32 (&r)[4], int q)
{
#pragma unroll
    for (int d = 1; d < 4; d *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & d)
                continue;
            bool odd = q & d;
            u32 got = __shfl_xor_sync(~0u, odd ? r[i] : r[i + d], d);
            if (odd)
                r[i] = got;
            else
                r[i + d] = got;
        }
}

struct yes {
    constexpr operator bool() const { return true; }
};
struct no {
    constexpr operator bool() const { return false; }
};

KERNEL __launch_bounds__(WARPS * 32, kResident) linear_ordered(const __grid_constant__ linear_params p)
{
    __shared__ WarpSums sums;
    static_assert(K % 8 == 0, "a lane's 16 bytes are all inside a row or all outside");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    int j0 = blockIdx.x * kRowsOut;
    int begin = segment_begin(warp, WARPS, K), end = min(segment_begin(warp + 1, WARPS, K), K);
    // Lanes for rows beyond the last read the last row again; their sums are thrown away.
    int row_low = min(j0 + g, p.rows - 1), row_high = PAIR ? p.rows + row_low : min(j0 + 8 + g, p.rows - 1);
    const u16 *w = (const u16 *)p.w, *low = w + (i64)row_low * K + q * 8,
              *high = w + (i64)row_high * K + q * 8;

    uint4 wl[kPrefetch], wh[kPrefetch];
    auto fetch = [&](int step, uint4 &l, uint4 &h) {
        int k = begin + step * 32;
        bool inside = !kRagged || k + q * 8 < end;
        l = inside ? load_weights16(low + k) : make_uint4(0, 0, 0, 0);
        h = inside && !HALF ? load_weights16(high + k) : make_uint4(0, 0, 0, 0);
    };
#pragma unroll
    for (int i = 0; i < kPrefetch; i++)
        fetch(i, wl[i], wh[i]);
    pdl_go();
    pdl_wait();

    float c[TILES][4] = {};
    uint4 x[TILES][kAhead];
    const u16 *from[TILES];
    auto fetch_x = [&](int step, int slot) {
        int k = begin + step * 32;
#pragma unroll
        for (int n = 0; n < TILES; n++)
            x[n][slot] = !kRagged || k + q * 8 < end ? load16(from[n] + k) : make_uint4(0, 0, 0, 0);
    };
#pragma unroll
    for (int n = 0; n < TILES; n++)
        from[n] = p.x + (i64)min(n * 8 + g, p.n_tokens - 1) * p.x_stride + q * 8;
#pragma unroll
    for (int i = 0; i < kAhead; i++)
        fetch_x(i, i);
    // Multiplies kPrefetch steps from s0 on. With `more` it also fetches the steps after them.
    auto multiply = [&](int s0, auto more) {
#pragma unroll
        for (int i = 0; i < kPrefetch; i++) {
            int step = s0 + i;
            if (kRagged && begin + step * 32 >= end)
                break;
            u32 a[4] = {wl[i].x, wl[i].y, wl[i].z, wl[i].w}, b[4] = {wh[i].x, wh[i].y, wh[i].z, wh[i].w};
            transpose(a, q);
            if constexpr (!HALF)
                transpose(b, q);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                const uint4 &v = x[n][i % kAhead];
                u32 t[4] = {v.x, v.y, v.z, v.w};
                transpose(t, q);
                mma_bf16(c[n], a[0], b[0], a[1], b[1], t[0], t[1]);
                mma_bf16(c[n], a[2], b[2], a[3], b[3], t[2], t[3]);
            }
            if constexpr (more)
                fetch(step + kPrefetch, wl[i], wh[i]);
            if (more || i + kAhead < kPrefetch)
                fetch_x(step + kAhead, i % kAhead);
        }
    };
#pragma unroll 1
    for (int s0 = 0; s0 < kSteps - kPrefetch; s0 += kPrefetch)
        multiply(s0, yes());
    multiply(kSteps - kPrefetch, no());
    finish(p, c, j0, sums);
}
