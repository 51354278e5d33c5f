// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     for tens of tokens, W in quantised tiles
// (linear_quant.h), wgmma (sm_90a)
//
// x [tokens, K] bf16, y [tokens, rows] bf16 or fp32 (paired: [tokens, rows / 2]).
//
// The weights are the rows of a wgmma, tokens its columns: each weight is made bf16 once for all TOKENS tokens of a
// tile. A CTA has 64 GROUPS weight rows (PAIR: half of them gate rows, then their up rows) and TOKENS tokens. SPLIT
// CTAs of a cluster share a tile along K and add their sums as gemm_split_sm90.cu does.
//
//   GROUPS warpgroups 64 weight rows each, 16 a warp: two tiles of 8. A lane unpacks its 8 elements of a chunk of 32
//                     columns and scales them (quant_wgmma.cuh). They lie in the registers in which wgmma wants its
//                     first operand; chunks take turns in two sets of registers.
//   the last one      brings tiles, 256 columns a stage, by bulk copies that begin before pdl_wait(), and x, X_UNITS
//                     units of 128 columns a stage. A lane has 8 neighbouring columns of a weight, so x is permuted:
//                     k 2 q, 2 q + 1 of step p of a chunk are columns 8 q + 2 p, 8 q + 2 p + 1. stmatrix writes it so:
//                     register p of the lanes of a quad becomes a vector of 16 bytes.
//
// Grid: row tiles x token tiles x SPLIT, the token tiles of a row tile neighbours. Up to 64 tokens two CTAs share an
// SM. Bytes: the tiles of W once, from L2 for each further tile of tokens; x once for each row tile, from L2.
// Template: BITS, OFFSET, FORM, K, TOKENS 32 | 64 | 128, GROUPS 2 | 3 (3 with 128 tokens alone), SPLIT 1 | 2 | 4 | 8,
// STAGES, X_STAGES, X_UNITS 1 | 2 (units between two waits for all of wgmma), PAIR (0 none, 1 silu, 2 gelu), OUT_F32,
// BIAS, RESIDUAL.
#include "ptx_sm90.cuh"
#include "quant_tile.cuh"
#include "quant_wgmma.cuh"
#include "linear_order.cuh"
#include "linear_params.h"

constexpr int kConsumers = 128 * GROUPS, kThreads = kConsumers + 128, kWarps = kConsumers / 32;
constexpr int kTiles = 2 * kWarps;             // tiles of 8 weight rows
constexpr int kColumns = (PAIR ? 32 : 64) * GROUPS; // of y
constexpr int kPairs = (kUnits + 1) / 2;       // steps of 256 columns
constexpr int kPart = 2 * unit_bytes(4) + 32 * kSuper;
constexpr int kLastPart = (int)(kTileBytes - (i64)(kPairs - 1) * kPart);
constexpr int kWStage = kTiles * kPart, kXHalf = TOKENS * 128, kXStage = X_UNITS * 2 * kXHalf;
constexpr int kSumStride = 64 * GROUPS + 4; // floats: lanes of a store hit 32 banks
constexpr bool kTwoCtas = TOKENS <= 64;
static_assert(kTail == 0, "whole units");
static_assert(GROUPS == 2 || (GROUPS == 3 && !kTwoCtas), "how many registers a warpgroup has");
static_assert(TOKENS * kSumStride * 4 <= X_STAGES * kXStage + STAGES * kWStage, "the sums lie over the stages");

struct Part {
    int tile, token; // the first of both
    int first, units, rank; // first pair of this CTA, and its number of units
};

#include "tile_sums_sm90.cuh"

INLINE Part my_part(const linear_params &p)
{
    int rank = blockIdx.x % SPLIT, item = blockIdx.x / SPLIT, across = (p.n_tokens + TOKENS - 1) / TOKENS;
    int first = rank * kPairs / SPLIT, end = (rank + 1) * kPairs / SPLIT;
    return {item / across * (kColumns / 8), item % across * TOKENS, first, min(2 * end, kUnits) - 2 * first, rank};
}

struct Shared {
    char *x, *w;
    u64 *x_full, *x_empty, *w_full;
};

/* ---- the warpgroup that brings ---- */

// Run by the four warps of the group, each of which copies four tiles: by one lane in turn, because a copy's addresses
// are those of the warp, and the compiler makes a loop over lanes that differ.
INLINE void load_pair(const linear_params &p, const Shared &sh, const Part &t, int pair)
{
    constexpr int kEach = kTiles / 4;
    int s = pair % STAGES, tiles = (p.rows + 7) / 8, first = threadIdx.x / 32 % 4 * kEach;
    int bytes = t.first + pair == kPairs - 1 ? kLastPart : kPart;
    if (threadIdx.x % 32 > 0)
        return;
    barrier_expect(&sh.w_full[s], kEach * bytes);
#pragma unroll
    for (int i = first; i < first + kEach; i++) {
        int tile = min(t.tile + (PAIR ? i / 2 : i), tiles - 1) + (PAIR && i % 2 ? tiles : 0);
        bulk_load(&sh.w_full[s], sh.w + s * kWStage + i * kPart,
                  (const u8 *)p.w + tile * kTileBytes + (i64)(t.first + pair) * kPart, bytes);
    }
}

constexpr int kLoads = TOKENS / 8; // vectors of x that a lane brings for a unit: 4 chunks of TOKENS / 32 tokens

// Where a lane's first columns of its tokens lie: those of token group 4 i + warp.
struct Rows {
    const u16 *at[kLoads / 4];
};

INLINE Rows rows_of(const linear_params &p, const Part &t)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    Rows rows;
#pragma unroll
    for (int i = 0; i < kLoads / 4; i++) {
        int token = min(t.token + (i * 4 + warp) * 8 + lane / 4, p.n_tokens - 1);
        rows.at[i] = p.x + (i64)token * p.x_stride + t.first * 256 + (kHalves ? 4 : 8) * (lane % 4);
    }
    return rows;
}

// The x of unit `unit` of this CTA: chunk i % 4 of token group i / 4 * 4 + warp.
INLINE void load_x(const Rows &rows, int unit, uint4 (&v)[kLoads])
{
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
        const u16 *from = rows.at[i / 4] + unit * 128 + i % 4 * 32;
        if constexpr (kHalves) {
            uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + 16);
            v[i] = make_uint4(low.x, low.y, high.x, high.y);
        } else {
            v[i] = load16(from);
        }
    }
}

INLINE void store_x(const Shared &sh, int stage, int unit, const uint4 (&v)[kLoads])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, matrix = lane / 8, r = lane % 8;
    u32 to = shared_address(sh.x + stage * kXStage + unit * 2 * kXHalf);
#pragma unroll
    for (int i = 0; i < kLoads; i++)
        store_matrix4(to + i % 4 / 2 * kXHalf + ((i / 4 * 4 + warp) * 8 + r) * 128 + ((i % 2 * 4 + matrix) ^ r) * 16,
                      v[i].x, v[i].y, v[i].z, v[i].w);
}

// A stage of x is free when its units' weights have been read too, so the stage of a pair is free with its last unit.
INLINE void produce(const linear_params &p, const Shared &sh, const Part &t)
{
    static_assert(X_UNITS == 1 || STAGES >= X_STAGES, "the pair of a unit has been asked for");
    uint4 v[kLoads]; // of the next unit: on its way while this one waits for its stage
    Rows rows = rows_of(p, t);
    load_x(rows, 0, v);
#pragma unroll 1
    for (int i = 0; i < t.units; i++) {
        int group = i / X_UNITS, s = group % X_STAGES, done = i - X_STAGES * X_UNITS;
        if (done >= 0 && i % X_UNITS == 0)
            barrier_wait(&sh.x_empty[s], (group / X_STAGES + 1) & 1);
        if (done >= 0 && done % 2 == (X_UNITS == 1) && 2 * (done / 2 + STAGES) < t.units)
            load_pair(p, sh, t, done / 2 + STAGES);
        store_x(sh, s, i % X_UNITS, v);
        fence_async_shared();
        __syncwarp();
        if (threadIdx.x % 32 == 0 && (i % X_UNITS == X_UNITS - 1 || i + 1 == t.units))
            barrier_arrive(&sh.x_full[s]);
        if (i + 1 < t.units)
            load_x(rows, i + 1, v);
    }
}

/* ---- the warpgroups that multiply ---- */

INLINE void multiply(float *acc, const u32 *a, u64 b, int accumulate)
{
    if constexpr (TOKENS == 32)
        wgmma_m64n32k16_rs(acc, a, b, accumulate);
    else if constexpr (TOKENS == 64)
        wgmma_m64n64k16_rs(acc, a, b, accumulate);
    else
        wgmma_m64n128k16_rs(acc, a, b, accumulate);
}

// Multiplies units i to i + N - 1 of this CTA, which share a stage of x.
template <int N>
INLINE void consume_units(const Shared &sh, int i, float (&acc)[TOKENS / 2], u32 (&a)[2][8])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, s = i / X_UNITS % X_STAGES;
    const u8 *low = (const u8 *)sh.w + i / 2 % STAGES * kWStage + 2 * warp * kPart, *high = low + kPart;
    u64 columns = smem_descriptor(shared_address(sh.x + s * kXStage), 16, SWIZZLE_ATOM);
    barrier_wait(&sh.w_full[i / 2 % STAGES], i / 2 / STAGES & 1);
    barrier_wait(&sh.x_full[s], i / X_UNITS / X_STAGES & 1);
#pragma unroll
    for (int n = 0; n < N; n++) {
        int at = (i + n) % 2 * unit_bytes(4);
        Unit u, v;
        load_quants<4>(low + at, lane, u);
        load_quants<4>(high + at, lane, v);
        LaneScale scale_low = my_scale<4>(low, low + at), scale_high = my_scale<4>(high, high + at);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            u32(&to)[8] = a[c % 2];
            dequantise_pair(u, v, c, scale_low, scale_high, to);
            wgmma_fence();
            u64 x = columns + ((2 * n + c / 2) * kXHalf + c % 2 * 64) / 16;
            multiply(acc, to, x, i + n > 0 || c > 0);
            multiply(acc, to + 4, x + 32 / 16, 1);
            wgmma_commit();
            WGMMA_WAIT(1); // the chunk before this one
        }
    }
    WGMMA_WAIT(0);
    __syncwarp(); // all lanes have read the tiles before lane 0 says so
    if (lane == 0)
        barrier_arrive(&sh.x_empty[s]);
}

// Leaves this CTA's sums where the stages were.
INLINE void consume(const Shared &sh, const Part &t)
{
    float acc[TOKENS / 2];
    u32 a[2][8];
#pragma unroll 1
    for (int i = 0; i + X_UNITS <= t.units; i += X_UNITS)
        consume_units<X_UNITS>(sh, i, acc, a);
    if (kUnits % X_UNITS && t.units % X_UNITS)
        consume_units<1>(sh, t.units - 1, acc, a);
    WGMMA_WAIT(0);
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        wgmma_touch(acc[i]);
    leave_sums((float *)sh.x, acc);
}

KERNEL __launch_bounds__(kThreads, kTwoCtas ? 2 : 1) linear_quant_sm90(const __grid_constant__ linear_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 x_full[X_STAGES], x_empty[X_STAGES], w_full[STAGES];
    char *stages = first_atom(raw);
    Shared sh = {stages, stages + X_STAGES * kXStage, x_full, x_empty, w_full};
    Part t = my_part(p);
    if (threadIdx.x == kConsumers) {
        for (int s = 0; s < X_STAGES; s++) {
            barrier_init(&x_full[s], 4);
            barrier_init(&x_empty[s], kWarps);
        }
        for (int s = 0; s < STAGES; s++)
            barrier_init(&w_full[s], 4);
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= kConsumers)
        for (int i = 0; i < STAGES && 2 * i < t.units; i++)
            load_pair(p, sh, t, i);
    pdl_go();
    pdl_wait();
    if (threadIdx.x < kConsumers) {
        if (kTwoCtas && kBytes)
            SETMAXNREG_INC(88);
        else if (kTwoCtas)
            SETMAXNREG_INC(96);
        else if (GROUPS == 3)
            SETMAXNREG_INC(136);
        else
            SETMAXNREG_INC(176);
        consume(sh, t);
    } else {
        if (kTwoCtas && kBytes)
            SETMAXNREG_DEC(64);
        else if (kTwoCtas)
            SETMAXNREG_DEC(48);
        else if (GROUPS == 3)
            SETMAXNREG_DEC(104);
        else
            SETMAXNREG_DEC(152);
        produce(p, sh, t);
    }
    add_sums(p, t, (const float *)stages);
}
