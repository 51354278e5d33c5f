// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     in E4M3 for many tokens (sm_90a)
//
// x [tokens, K] as fp8_rows.cu makes it; W in quantised tiles (linear_quant.h) of FP8, 32 rows of one scale; y [tokens,
// rows] bf16 (paired: [tokens, rows / 2]).
//
// Grid: clusters of two CTAs, persistent over tiles of 128 tokens and ROWS weight rows (PAIR: half of them gate rows,
// then their up rows). The tiles of a cluster have the same weights, of which each CTA brings half, to both.
//
//   warpgroup 0      one lane keeps STAGES units of 128 columns in flight by TMA: of the tokens, of the weights, which
//                    it swizzles on the way, and the scales of both.
//   warpgroups 1, 2  64 tokens each. Tokens are the rows of wgmma, so a lane needs two scales of tokens a unit. (With
//                    weights as rows it needs a scale for each column: 48 loads a unit, which bound the kernel.) The
//                    products of a unit are summed by the tensor cores; such a sum times its two scales is added to
//                    the total, in fp32. While one warpgroup adds, the other one multiplies: they take turns.
//
// TMA brings the residual to the buffers of results while a tile is computed, and stores the results from there.
//
// Bytes: W once for each 16 tiles of tokens, x once for each tile of rows, from L2. Roof: FP8 tensor cores, less what
// the additions take.
// Template: K, ROWS 128 | 192, STAGES, PAIR (0 none, 1 silu, 2 gelu), BIAS, RESIDUAL.
#include "ptx_sm90.cuh"
#include "linear_order.cuh"
#include "linear_fp8_params.h"

constexpr int kUnits = K / 128, kCtas = 2, kTokens = 128, kTiles = ROWS / 8;
constexpr int kGroup = 16;                       // tiles of tokens that are walked together
constexpr int kColumns = PAIR ? ROWS / 2 : ROWS; // of y
constexpr int kXStage = kTokens * 128, kWStage = ROWS * 128, kHalf = kWStage / 2;
constexpr int kXScales = kTokens * 4, kWScales = kTiles * 32;
constexpr int kChunk = PAIR ? 32 : 64, kChunks = kColumns / kChunk; // columns of a box of y
constexpr int kChunkBytes = 64 * kChunk * 2, kBuffer = kChunks * kChunkBytes; // of a warpgroup
static_assert(K % 128 == 0 && kColumns % kChunk == 0, "whole units and boxes");

struct Shared {
    char *x, *w, *out;
    float *x_scale, *w_scale;
    u64 *full, *empty, *out_full; // out_full: of each warpgroup that multiplies
};

struct Item {
    int token, column; // the first of both
};

struct Walk {
    int tokens, rows; // tiles: of tokens in clusters, of rows
};

INLINE int cluster_rank() { return blockIdx.x % kCtas; }
INLINE int first_item() { return blockIdx.x / kCtas; }
INLINE int item_step() { return gridDim.x / kCtas; }

// Clusters of kGroup tiles of tokens walk the rows together, so that weights come from L2.
INLINE Item item_at(const Walk &w, int i)
{
    constexpr int kClusters = kGroup / kCtas;
    int group = i / (kClusters * w.rows), first = group * kClusters, height = min(kClusters, w.tokens - first);
    int in = i - group * kClusters * w.rows;
    return {((first + in % height) * kCtas + cluster_rank()) * kTokens, in / height * kColumns};
}

/* ---- the lane that brings ---- */

// This CTA's half of a unit of the weights goes to both: of a pair gate or up, else the first or the last tiles.
INLINE void load_half(const linear_fp8_params &p, const Shared &sh, const Item &item, int unit, u32 s)
{
    int h = cluster_rank();
    int tile = item.column / 8 + (PAIR ? 0 : h * kTiles / 2);
    char *to = sh.w + s * kWStage + h * kHalf;
    tma_load_5d_multicast(&p.w, &sh.full[s], to, 0, 0, tile, PAIR ? h : 0, unit, (1 << kCtas) - 1);
}

INLINE void load_unit(const linear_fp8_params &p, const Shared &sh, const Item &item, int unit, u32 s)
{
    barrier_expect(&sh.full[s], kXStage + kWStage + kXScales + kWScales);
    tma_load_2d(&p.x, &sh.full[s], sh.x + s * kXStage, unit * 64, item.token); // in elements of two bytes
    load_half(p, sh, item, unit, s);
    tma_load_4d(&p.w_scale, &sh.full[s], sh.w_scale + s * kWScales / 4, 128, unit, item.column / 8, 0);
    bulk_load(&sh.full[s], sh.x_scale + s * kTokens, p.x_scale + (i64)unit * p.padded + item.token, kXScales);
}

INLINE void produce(const linear_fp8_params &p, const Shared &sh, const Walk &walk)
{
    u32 at = 0;
    for (int i = first_item(); i < walk.tokens * walk.rows; i += item_step()) {
        Item item = item_at(walk, i);
#pragma unroll 1
        for (int k = 0; k < kUnits; k++, at++) {
            barrier_wait(&sh.empty[at % STAGES], (at / STAGES + 1) & 1); // in the first round this does not wait
            load_unit(p, sh, item, k, at % STAGES);
        }
    }
}

/* ---- the warpgroups that multiply ---- */

// Side by side they would also add up side by side.
INLINE void take_turn(int group) { named_barrier(3 + group, 256); }
INLINE void give_turn(int group) { named_arrive(4 - group, 256); }

INLINE void multiply(float *acc, u64 a, u64 b, int accumulate)
{
    if constexpr (ROWS == 128)
        wgmma_m64n128k32_ss_e4m3(acc, a, b, accumulate);
    else
        wgmma_m64n192k32_ss_e4m3(acc, a, b, accumulate);
}

// This warp has read a stage. Both CTAs wait for that before they bring a part of the next one to it.
INLINE void free_stage(u64 *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 > 0)
        return;
#pragma unroll
    for (int i = 0; i < kCtas; i++)
        barrier_arrive_at(empty, i);
}

// Adds the products of a unit to this lane's totals.
INLINE void consume_unit(const Shared &sh, u32 at, float (&total)[ROWS / 2])
{
    int group = threadIdx.x / 128 - 1, row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    u32 s = at % STAGES, x = shared_address(sh.x + s * kXStage) + group * 64 * 128;
    u32 w = shared_address(sh.w + s * kWStage);
    float acc[ROWS / 2];
    barrier_wait(&sh.full[s], at / STAGES & 1);
    float low = sh.x_scale[s * kTokens + row], high = sh.x_scale[s * kTokens + row + 8];
    const float *w_scale = sh.w_scale + s * kWScales / 4;
    take_turn(group);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < 4; c++) // a tile has two blocks of 64 columns, each of 8 rows of 64 bytes
        multiply(acc, smem_descriptor(x + c * 32, 16, SWIZZLE_ATOM),
                 smem_descriptor_64(w + c / 2 * 512 + c % 2 * 32, 16, 1024), c > 0);
    wgmma_commit();
    WGMMA_WAIT(0);
    give_turn(group);
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++)
        wgmma_touch(acc[i]);
#pragma unroll
    for (int j = 0; j < kTiles; j++) {
        float of = w_scale[j / 4 * 4 * 8], of_low = low * of, of_high = high * of; // 32 rows have one scale
        total[4 * j] = fmaf(acc[4 * j], of_low, total[4 * j]);
        total[4 * j + 1] = fmaf(acc[4 * j + 1], of_low, total[4 * j + 1]);
        total[4 * j + 2] = fmaf(acc[4 * j + 2], of_high, total[4 * j + 2]);
        total[4 * j + 3] = fmaf(acc[4 * j + 3], of_high, total[4 * j + 3]);
    }
    free_stage(&sh.empty[s]);
}

/* ---- the end of a tile ---- */

// Where the warpgroup's buffer has columns col, col + 1 of one of its tokens: chunks of kChunk columns, swizzled.
INLINE u32 *place_of(char *buffer, int token, int col)
{
    int vector = col % kChunk / 8 ^ (PAIR ? token / 2 % 4 : token % 8);
    return (u32 *)(buffer + col / kChunk * kChunkBytes + token * kChunk * 2 + vector * 16 + col % 8 * 2);
}

#if PAIR == 1
#define ACTIVATION silu
#else
#define ACTIVATION gelu_tanh
#endif

// Two neighbouring columns of a token, from their sums and, of a pair, those of up.
INLINE void finish_pair(const linear_fp8_params &p, const Item &item, u32 *to, int col, const float *sum,
                        const float *up)
{
    int first = min(item.column + col, p.rows - 2); // columns beyond the last are thrown away
    float a = BIAS ? scaled(sum[0], p.scale, p.bias[first]) : scaled(sum[0], p.scale);
    float b = BIAS ? scaled(sum[1], p.scale, p.bias[first + 1]) : scaled(sum[1], p.scale);
    if constexpr (PAIR) {
        a = ACTIVATION(a) * scaled(up[0], p.scale);
        b = ACTIVATION(b) * scaled(up[1], p.scale);
    }
    if constexpr (RESIDUAL) {
        a = plus(a, bf16_low(*to));
        b = plus(b, bf16_high(*to));
    }
    *to = pack_bf16(a, b);
}

// Run by one thread of a warpgroup. The stores of the tile before have read the buffer.
INLINE void load_residual(const linear_fp8_params &p, char *buffer, u64 *full, const Item &item, int group)
{
    tma_store_wait_read();
    barrier_expect(full, kBuffer);
#pragma unroll
    for (int i = 0; i < kChunks; i++)
        tma_load_2d(&p.from_map, full, buffer + i * kChunkBytes, item.column + i * kChunk, item.token + group * 64);
}

// The warpgroups do not wait for each other here.
INLINE void finish_tile(const linear_fp8_params &p, const Shared &sh, const Item &item, u32 round,
                        const float (&total)[ROWS / 2])
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    char *buffer = sh.out + group * kBuffer;
    if constexpr (RESIDUAL) {
        barrier_wait(&sh.out_full[group], round & 1);
    } else {
        if (thread == 0)
            tma_store_wait_read(); // the stores of the tile before have read the buffer
        named_barrier(1 + group, 128);
    }
#pragma unroll
    for (int j = 0; j < kColumns / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *sum = total + 4 * j + 2 * half;
            int token = thread / 32 * 16 + lane / 4 + 8 * half, col = j * 8 + lane % 4 * 2;
            finish_pair(p, item, place_of(buffer, token, col), col, sum, sum + (PAIR ? ROWS / 4 : 0));
        }
    fence_async_shared();
    named_barrier(1 + group, 128);
    if (thread > 0)
        return;
#pragma unroll
    for (int i = 0; i < kChunks; i++)
        tma_store_2d(&p.y_map, buffer + i * kChunkBytes, item.column + i * kChunk, item.token + group * 64);
    tma_store_commit();
}

INLINE void consume(const linear_fp8_params &p, const Shared &sh, const Walk &walk)
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    u32 at = 0, round = 0;
    if (group == 1)
        give_turn(1);
    for (int i = first_item(); i < walk.tokens * walk.rows; i += item_step(), round++) {
        Item item = item_at(walk, i);
        float total[ROWS / 2];
#pragma unroll
        for (int n = 0; n < ROWS / 2; n++)
            total[n] = 0.f;
#pragma unroll 1
        for (int k = 0; k < kUnits; k++, at++) {
            consume_unit(sh, at, total);
            if (RESIDUAL && k == 0 && thread == 0)
                load_residual(p, sh.out + group * kBuffer, &sh.out_full[group], item, group);
        }
        finish_tile(p, sh, item, round, total);
    }
    if (group == 0)
        take_turn(0); // the last one that was given
    if (thread == 0)
        tma_store_wait_all();
}

KERNEL __launch_bounds__(384, 1) gemm_fp8_sm90(const __grid_constant__ linear_fp8_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES], out_full[2];
    Shared sh = {first_atom(raw), 0, 0, 0, 0, full, empty, out_full};
    sh.w = sh.x + STAGES * kXStage;
    sh.out = sh.w + STAGES * kWStage;
    sh.w_scale = (float *)(sh.out + 2 * kBuffer);
    sh.x_scale = sh.w_scale + STAGES * kWScales / 4;
    Walk walk = {(p.n_tokens + kTokens * kCtas - 1) / (kTokens * kCtas), (p.rows + kColumns - 1) / kColumns};
    if (threadIdx.x == 0) {
        tma_prefetch_map(&p.x);
        tma_prefetch_map(&p.w);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 8 * kCtas); // every warp that multiplies
        }
        barrier_init(&out_full[0], 1);
        barrier_init(&out_full[1], 1);
        barrier_init_done();
    }
    cluster_sync<kCtas>();
    pdl_wait();
    if (threadIdx.x < 128) {
        SETMAXNREG_DEC(40);
        if (threadIdx.x == 0)
            produce(p, sh, walk);
        __syncwarp();
    } else {
        SETMAXNREG_INC(232);
        consume(p, sh, walk);
    }
    cluster_sync<kCtas>(); // no CTA ends before the other one's last arrival at its barriers
    pdl_go();
}
