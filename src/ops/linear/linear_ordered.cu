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
// NORM: x is normalised first, so that a step has one kernel less (linear_normed.cu). Every CTA makes the norm of up to
// TOKENS tokens in shared memory, with the order of sums and the roundings of rmsnorm.cu, whose LANES it names: the
// products are those of rows that rmsnorm.cu wrote.
// Template: K, WARPS (= segments), TILES (of 8 tokens, 1 or 2), HALF, SLOTS, PAIR (0 none, 1 silu, 2 gelu), OUT_F32,
// BIAS, RESIDUAL, NORM, TOKENS, LANES, PLUS_ONE (the last three with NORM).

#include "linear_order.cuh"
constexpr int kColumns = TILES * 8;
constexpr int GROUPS = 1;
#include "linear_finish.cuh"
#include "linear_params.h"

constexpr int kRowsIn = HALF ? 8 : 16, kRowBytes = ORDERED_CHUNK * 2, kXSlot = kRowsIn * kRowBytes;
constexpr int kSlot = ORDERED_SLOT_BYTES(kRowsIn, NORM ? 0 : kColumns); // x lies behind the weights, at kXSlot
constexpr int kNormed = NORM ? ORDERED_NORMED_BYTES(K) : 0;             // a normed row
// Rings that hold a whole segment: their chunks are multiplied without a wait between them.
constexpr int kGrains = (K + kSegmentGrain - 1) / kSegmentGrain;
constexpr int kLongest = (kGrains + WARPS - 1) / WARPS * kSegmentGrain;
constexpr bool kWhole = SLOTS * ORDERED_CHUNK >= kLongest;
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

// Adds the products of the chunk at `slot` in four steps of 16 columns. x_at(t, c) is piece c of the chunk of token t.
template <class X> INLINE void multiply(float (&c)[TILES][4], u32 slot, X x_at)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) { // two steps: ldmatrix gives all four operands of x
        frag4 x[TILES], w[2];
#pragma unroll
        for (int n = 0; n < TILES; n++)
            x[n] = load_matrix4(x_at(n * 8 + lane % 8, half * 4 + lane / 8));
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

#if NORM
constexpr int kThreads = WARPS * 32, kVectors = K / 8, kPer = (kVectors + LANES - 1) / LANES;
constexpr int kSums = (LANES + 31) / 32;           // warps of rmsnorm.cu that share a row
constexpr int kMine = (kSums + WARPS - 1) / WARPS; // of them this warp does the work of w, w + WARPS, ...

// The vector number (j, i) of this thread, -1: none.
INLINE int vector_of(int j, int i)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 + j * WARPS, v = i * LANES + warp * 32 + lane;
    return lane < LANES && warp < kSums && v < kVectors ? v : -1;
}

// Calls use(v, j, i) for each vector of this thread.
template <class Use> INLINE void for_vectors(Use use)
{
#pragma unroll
    for (int j = 0; j < kMine; j++)
#pragma unroll
        for (int i = 0; i < kPer; i++) {
            int v = vector_of(j, i);
            if (v < 0)
                continue;
            use(v, j, i);
        }
}

// Copies the norm's weights of this thread's vectors to `to`.
INLINE void fetch_norm(const linear_params &p, u32 to)
{
    for_vectors([&](int v, int, int) {
        copy_async16(to + v * 32, p.norm + v * 8, 16);
        copy_async16(to + v * 32 + 16, p.norm + v * 8 + 4, 16);
    });
    copy_async_commit();
}

// Writes the norm of p.x's rows to `to`; `by` has the weights.
INLINE void make_norm(const linear_params &p, u32 to, const float *by)
{
    __shared__ float part[TOKENS][kSums];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4 raw[TOKENS][kMine][kPer];
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
#pragma unroll
        for (int j = 0; j < kMine; j++)
#pragma unroll
            for (int i = 0; i < kPer; i++) {
                int v = vector_of(j, i);
                bool inside = v >= 0 && t < p.n_tokens;
                raw[t][j][i] = inside ? load16(p.x + (i64)t * p.x_stride + v * 8) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
#pragma unroll
        for (int j = 0; j < kMine; j++) {
            float sum = 0.f;
#pragma unroll
            for (int i = 0; i < kPer; i++) {
                f32x8 x = unpack8(raw[t][j][i]);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    sum = fmaf(x.v[k], x.v[k], sum);
            }
            sum = warp_sum(sum);
            if (lane == 0 && warp + j * WARPS < kSums)
                part[t][warp + j * WARPS] = sum;
        }
    copy_async_wait<1>(); // the norm's weights, not the matrix's
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        float sum = kSums > 1 ? 0.f : part[t][0];
#pragma unroll
        for (int i = 0; i < kSums && kSums > 1; i++)
            sum += part[t][i];
        float scale = rsqrtf(sum / K + p.eps);
        for_vectors([&](int v, int j, int i) {
            f32x8 x = unpack8(raw[t][j][i]);
#pragma unroll
            for (int k = 0; k < 8; k++)
                x.v[k] = x.v[k] * scale * (by[v * 8 + k] + (float)PLUS_ONE);
            uint4 y = pack8(x);
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + t * kNormed + v * 16), "r"(y.x),
                         "r"(y.y), "r"(y.z), "r"(y.w)
                         : "memory");
        });
    }
    __syncthreads();
}
#endif

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
    char *behind = rings + WARPS * SLOTS * kSlot; // NORM: the norm's weights, the normed rows
    u32 normed = shared_address(behind) + (NORM ? K * 4 : 0);
#if NORM
    fetch_norm(p, shared_address(behind));
#endif
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
        if (begin + i * ORDERED_CHUNK < end)
            fetch<kRowsIn>(ring + i * kSlot, begin + i * ORDERED_CHUNK, end, kRowsIn, w_row);
    constexpr bool kBeside = TILES == 1 && kColumns * kRowsOut <= WARPS * 32;
    Beside beside;
    if constexpr (kBeside)
        load_bias(p, j0, beside);
    if constexpr (NORM)
        copy_async_commit();
    pdl_go();
    pdl_wait();
    if constexpr (kBeside)
        load_residual(p, j0, beside);
#if NORM
    make_norm(p, normed, (const float *)behind);
#endif
#pragma unroll
    for (int i = 0; i < SLOTS && !NORM; i++) {
        if (begin + i * ORDERED_CHUNK < end)
            fetch<kColumns>(ring + i * kSlot + kXSlot, begin + i * ORDERED_CHUNK, end, p.n_tokens, x_row);
        copy_async_commit(); // the first of these groups has all the weights, too
    }
    float c[TILES][4] = {};
    auto multiply_at = [&](u32 slot, int k) {
        multiply(c, slot, [&](int t, int piece) {
            return NORM ? normed + min(t, TOKENS - 1) * kNormed + k * 2 + piece * 16
                        : slot + kXSlot + swizzled(t, piece);
        });
    };
    if constexpr (kWhole) {
        copy_async_wait<0>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
            if (begin + i * ORDERED_CHUNK < end)
                multiply_at(ring + i * kSlot, begin + i * ORDERED_CHUNK);
    } else {
        u32 slot = ring;
        if (NORM)
            copy_async_wait<0>();
        for (int k = begin; k < end; k += ORDERED_CHUNK) {
            copy_async_wait<SLOTS - 1>();
            __syncwarp();
            multiply_at(slot, k);
            __syncwarp();
            int next = k + SLOTS * ORDERED_CHUNK;
            if (next < end) {
                fetch<kRowsIn>(slot, next, end, kRowsIn, w_row);
                if (!NORM)
                    fetch<kColumns>(slot + kXSlot, next, end, p.n_tokens, x_row);
            }
            copy_async_commit();
            slot = slot + kSlot < ring + SLOTS * kSlot ? slot + kSlot : ring;
        }
    }
    finish<kBeside>(p, c, j0, sums, beside);
}
