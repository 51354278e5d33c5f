// y = epilogue(scale * x W^T + bias) (+ residual) for tens of rows: the weights decide (sm_90a).
//
//   x [M, K], W [N, K] row-major bf16; y [M, N] bf16 or fp32, row strides in elements
//   PAIR 1, 2: W is gate [N/2, K] over up [N/2, K]; y [M, N/2] = silu(gate) * up, or gelu_tanh
//
// Few tokens make few tiles, and too few SMs would stream the weights. So the SPLIT CTAs of a cluster
// share a tile of BM x BN along K:
//
//   1. Each CTA runs its K range through STAGES stages of TMA. The last warp loads; a warpgroup for
//      every 64 rows of x multiplies.
//   2. It writes its fp32 sums over the stages. A cluster barrier follows.
//   3. CTA `rank` adds up rows SPLIT i + rank from the shared memory of all CTAs, in rising rank.
//
// So every sum has one order (linear_order.cuh), and nothing but y goes to memory. With more SEGMENTS than CTAs a CTA
// keeps a set of sums for each of its segments, and step 3 adds up all of them.
//
// Grid: tiles x SPLIT CTAs, cluster {SPLIT, 1, 1}; the tiles of one W tile are neighbours, so that
// it comes from L2 the second time. A CTA takes less than half an SM's shared memory: the next
// kernel's CTAs move in beside the last ones and fill their stages with weights before pdl_wait(),
// so the stream of weights does not stop between kernels.
//
// Bytes: N K + M N, and x once for every tile of W, from L2. Roof: memory bandwidth.
// Up to 32 tokens a box of x has X_ROWS = 32 rows, and the other rows of the tile hold whatever was
// there before. A box of 64 rows would lie half beyond the end of x, and that is slow (us in a graph
// on an H200, 64 and 32 rows: 24576 x 4096 SwiGLU at 32 tokens 65.8 and 57.6; 151936 x 4096 339 and
// 306). Four boxes of 32 rows in place of one of 128 lose up to 30 % at 64 tokens and more.
// Tried: tiles of 128 columns, which read x half as often. At 64 tokens on an H200 they were equal
// at best (6144 x 4096, 18.8 us against 19.0), 14 % slower at 4096 x 12288, 18 % at 1024 x 3072.
// Template: BM 64 | 128, BN 32 | 64 | 96 (rows of W, those of gate and up for a pair), X_ROWS 32 | BM,
// SPLIT 1 | 2 | 4 | 8, SEGMENTS (SPLIT times a power of two), STAGES, PAIR, BIAS, RESIDUAL, OUT_F32.
#include "ptx_sm90.cuh"
#include "linear_order.cuh"
#include "linear_sm90_params.h"

constexpr i32 BK = 64; // 128 bytes, one swizzle atom
static_assert(BN == 32 || BN == 64 || BN == 96, "see multiply_stage()");

constexpr i32 kConsumers = BM * 2, kThreads = kConsumers + 32;
constexpr i32 kXBytes = BM * BK * 2, kWBytes = BN * BK * 2, kStage = kXBytes + kWBytes;
constexpr i32 kLoaded = X_ROWS * BK * 2 + kWBytes; // bytes that arrive in a stage
constexpr i32 kColumns = PAIR ? BN / 2 : BN;
constexpr i32 kSumStride = BN + 8; // floats: rows shifted by 8 banks
constexpr i32 kParts = SEGMENTS / SPLIT; // segments of a CTA
static_assert(kParts * BM * kSumStride * 4 <= STAGES * kStage, "the sums lie over the stages");
static_assert(kParts * BN <= 128, "the sums are in registers before");

struct Tile {
    i32 m, n;         // first row and column of y
    i32 first, steps; // steps of 64 columns of K: the first, and how many
    i32 rank;
};

INLINE Tile my_tile(const gemm_split_params &p)
{
    i32 tiles_m = (p.m + BM - 1) / BM, steps = (p.k + BK - 1) / BK;
    i32 tile = blockIdx.x / SPLIT, rank = blockIdx.x % SPLIT;
    i32 first = segment_begin(rank * kParts, SEGMENTS, p.k) / BK,
        end = min(steps, segment_begin((rank + 1) * kParts, SEGMENTS, p.k) / BK);
    return {tile % tiles_m * BM, tile / tiles_m * kColumns, first, end - first, rank};
}

INLINE void load_w(const gemm_split_params &p, const Tile &t, i32 step, char *stage, u64 *full)
{
    i32 k = (t.first + step) * BK;
    tma_load_2d(&p.w, full, stage + kXBytes, k, t.n);
    if (PAIR)
        tma_load_2d(&p.w, full, stage + kXBytes + kWBytes / 2, k, p.n / 2 + t.n);
}

INLINE void load_x(const gemm_split_params &p, const Tile &t, i32 step, char *stage, u64 *full)
{
    tma_load_2d(&p.x, full, stage, (t.first + step) * BK, t.m);
}

// Run by one thread, like produce(): loads the first stages' weights before the last kernel has ended.
INLINE void produce_ahead(const gemm_split_params &p, const Tile &t, char *stages, u64 *full)
{
    for (i32 i = 0; i < min(STAGES, t.steps); i++) {
        barrier_expect(&full[i], kLoaded);
        load_w(p, t, i, stages + i * kStage, &full[i]);
    }
}

INLINE void produce(const gemm_split_params &p, const Tile &t, char *stages, u64 *full, u64 *empty)
{
    for (i32 i = 0; i < t.steps; i++) {
        i32 s = i % STAGES;
        if (i >= STAGES) {
            barrier_wait(&empty[s], (i / STAGES + 1) & 1);
            barrier_expect(&full[s], kLoaded);
            load_w(p, t, i, stages + s * kStage, &full[s]);
        }
        load_x(p, t, i, stages + s * kStage, &full[s]);
    }
}

INLINE void multiply_stage(float (&acc)[BN / 2], u32 x, u32 w, i32 first)
{
    wgmma_fence();
#pragma unroll
    for (i32 k = 0; k < BK / 16; k++) {
        u64 a = smem_descriptor(x + k * 32, 16, SWIZZLE_ATOM),
            b = smem_descriptor(w + k * 32, 16, SWIZZLE_ATOM);
        if constexpr (BN == 32)
            wgmma_m64n32k16_ss(acc, a, b, !(first && k == 0));
        else if constexpr (BN == 64)
            wgmma_m64n64k16_ss(acc, a, b, !(first && k == 0));
        else
            wgmma_m64n96k16_ss(acc, a, b, !(first && k == 0));
    }
    wgmma_commit();
}

// A warpgroup multiplies its 64 rows, then puts the sums [kParts][BM][kSumStride] where the stages were.
INLINE void consume(const gemm_split_params &p, const Tile &t, char *stages, u64 *full, u64 *empty)
{
    i32 group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = thread % 32, i = 0;
    float acc[kParts][BN / 2];
#pragma unroll
    for (i32 part = 0; part < kParts; part++) {
        i32 begin = i, end = t.steps;
        if (part + 1 < kParts)
            end = segment_begin(t.rank * kParts + part + 1, SEGMENTS, p.k) / BK - t.first;
        for (; i < end; i++) {
            i32 s = i % STAGES;
            u32 x = shared_address(stages + s * kStage);
            barrier_wait(&full[s], i / STAGES & 1);
            multiply_stage(acc[part], x + group * 64 * BK * 2, x + kXBytes, i == begin);
            WGMMA_WAIT(1); // the stage before this one has been read
            if (i > 0 && thread == 0)
                barrier_arrive(&empty[(i - 1) % STAGES]);
        }
    }
    WGMMA_WAIT(0);
#pragma unroll
    for (i32 part = 0; part < kParts; part++)
#pragma unroll
        for (i32 k = 0; k < BN / 2; k++)
            wgmma_touch(acc[part][k]);
    named_barrier(1, kConsumers); // all wgmmas have read the stages
    i32 row = group * 64 + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (i32 part = 0; part < kParts; part++) {
        float *sums = (float *)stages + (part * BM + row) * kSumStride + lane % 4 * 2;
#pragma unroll
        for (i32 j = 0; j < BN / 8; j++) {
            *(float2 *)(sums + j * 8) = make_float2(acc[part][4 * j], acc[part][4 * j + 1]);
            *(float2 *)(sums + 8 * kSumStride + j * 8) = make_float2(acc[part][4 * j + 2], acc[part][4 * j + 3]);
        }
    }
}

#include "linear_split_finish.cuh"

KERNEL __launch_bounds__(kThreads, 2) gemm_split_sm90(const __grid_constant__ gemm_split_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES];
    char *stages = (char *)(((u64)raw + SWIZZLE_ATOM - 1) & ~(u64)(SWIZZLE_ATOM - 1));
    Tile t = my_tile(p);

    if (threadIdx.x == kConsumers) {
        tma_prefetch_map(&p.w);
        tma_prefetch_map(&p.x);
        for (i32 s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], kConsumers / 128);
        }
        barrier_init_done();
        produce_ahead(p, t, stages, full);
    }
    __syncthreads();
    pdl_go();
    pdl_wait();
    if (threadIdx.x < kConsumers)
        consume(p, t, stages, full, empty);
    else if (threadIdx.x == kConsumers)
        produce(p, t, stages, full, empty);
    __syncwarp();
    // This barrier alone orders the stores of the sums before the loads below. compute-sanitizer's racecheck reports
    // a race here in 6 of 10 runs all the same; with a proxy fence before it in 3, with a __syncthreads() in none. That
    // costs 1.6 % of a step with 64 sequences of the 0.6B shape, so it is not there.
    cluster_sync<SPLIT>();

    constexpr i32 kQuads = kColumns / 4;
    for (i32 i = threadIdx.x; i < BM / SPLIT * kQuads; i += kThreads) {
        i32 row = i / kQuads * SPLIT + t.rank, col = i % kQuads * 4;
        const float *sums = (const float *)stages + row * kSumStride + col;
        if (t.m + row >= p.m || t.n + col >= (PAIR ? p.n / 2 : p.n))
            continue;
        float4 a = whole_sum<kParts, BM * kSumStride>(sums), up = a;
        if constexpr (PAIR)
            up = whole_sum<kParts, BM * kSumStride>(sums + kColumns);
        finish4(p, a, up, t.m + row, t.n + col);
    }
    cluster_sync<SPLIT>(); // a CTA's shared memory outlives its peers' reads
}
