// The experts' products of moe_gemm_sm90.cu for weights in quantised tiles (ops/linear/quant/linear_quant.h): a weight
// is made bf16 once for up to WIDTH slots, in the registers from which wgmma takes its first operand.
//
// weights: the experts' matrices one after the other; UP: ROWS pairs of a gate row and an up row, or without gates
// (moe_act.cuh) ROWS of up. x and h have their columns in the order of moe_order.cuh. Grid and results are those of
// moe_gemm_sm90.cu. An item is 256 weight rows (UP: 128 gate rows and their 128 up rows) of a tile of up to 128 slots:
// x is then read half as often from L2, which costs more than reading the smaller weights again.
//
//   warpgroup 0      copies by cp.async, into two rings, the slots' rows, 64 columns a stage, and the units of 32 tiles
//                    of 8 weight rows, 128 columns a stage. UP: a tile of gate rows and the tile of their up rows are
//                    neighbours. A stage is told full kLag steps later, when its copies have arrived. Thread 0 also
//                    draws the items and tells them to the others, one ahead.
//   warpgroups 1, 2  two blocks of 64 weight rows each, two tiles a warp of each. Chunks of 32 columns take turns in
//                    two sets of registers: while wgmma multiplies one, the next is unpacked. A unit's stage is free
//                    when its quants are in registers.
//
// Bytes: the tiles of every expert in use, once while its slots' tiles run together. Roof: memory bandwidth up to tens
// of slots an expert; then unpacking, and the bf16 tensor cores beyond some 100.
// Template: BITS, OFFSET, FORM (of the weights), ORDER (of h: that of down's type), UP, K, ROWS, K_USED, ACT, WIDTH
// 32 | 64 | 128, STAGES (of x), W_STAGES, BIAS.
constexpr int kStage = WIDTH * 64 * 2, kBlocks = 2, kOrder = ORDER;
constexpr bool kRowsEarly = false; // the registers do not suffice for them beside the sums
#include "quant_tile.cuh"
#include "quant_wgmma.cuh"
#include "moe_items_sm90.cuh"

constexpr int kRowTiles = (ROWS + 7) / 8; // of a matrix, or of a half of a pair
constexpr i64 kExpertBytes = (kGate ? 2 : 1) * kRowTiles * kTileBytes;
constexpr int kTiles = kTileRows / 8, kTilePart = unit_bytes(4) + 32 * kSuper, kWStage = kTiles * kTilePart;
static_assert(K % 64 == 0 && ROWS % 32 == 0, "whole stages of x, whole chunks of h");

/* ---- warpgroup 0 ---- */

constexpr int kLag = STAGES > 4 ? 2 : 1;
constexpr int kCopyRows = 16; // rows that the producers copy at once, 8 threads each
static_assert(STAGES >= kLag + 2, "consumers free a stage when they have the next, which is told kLag stages later");

// Copies a unit of the item's tiles with its super-scales, 16 bytes a thread at once. They belong to the copies of the
// step's rows. (Bulk copies, one a tile, take ten times as long: the compiler makes a loop over the lanes of them.)
INLINE void bring_weights(const moe_gemm_params &p, const Shared &sh, const Item &item, u32 round, int step)
{
    constexpr int kVectors = kTilePart / 16, kWhole = unit_bytes(4) / 16;
    if (step % 2 == 1)
        return;
    int unit = step / 2, there = kTail && unit == kUnits - 1 ? unit_bytes(kTail ? kTail : 4) / 16 : kWhole;
    u32 at = round * kUnits + unit, s = at % W_STAGES, to = shared_address(sh.w + s * kWStage);
    const u8 *expert = (const u8 *)p.weights + item.expert * kExpertBytes;
    int first = item.group * (kOutputs / 8);
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); // or the places of all vectors would stay in registers from step to step
    i64 from = kSuper ? (i64)(unit / 2) * kPairBytes : (i64)unit * unit_bytes(4);
    barrier_wait(&sh.w_empty[s], (at / W_STAGES + 1) & 1);
#pragma unroll
    for (int n = 0; n < kTiles * kVectors; n += 128) {
        int i = (n + thread) / kVectors, v = (n + thread) % kVectors;
        int tile = min(first + (kGate ? i / 2 : i), kRowTiles - 1) + (kGate && i % 2 ? kRowTiles : 0);
        int place = v * 16 + (!kSuper ? 0 : v >= kWhole ? unit_bytes(4) : unit % 2 * unit_bytes(4));
        if ((kTiles * kVectors % 128 == 0 || i < kTiles) && (kSuper || v < there))
            copy_async16(to + (n + thread) * 16, expert + tile * kTileBytes + from + place, 16);
    }
}

// The rows of x that this thread copies: those of slots thread / 8, + 16 ...; -1 behind the last.
INLINE void rows_of(const moe_gemm_params &p, const Item &item, i32 (&row)[WIDTH / kCopyRows])
{
#pragma unroll
    for (int j = 0; j < WIDTH / kCopyRows; j++) {
        i32 i = j * kCopyRows + threadIdx.x / 8;
        row[j] = i >= item.count ? -1 : UP ? p.order[item.begin + i] / K_USED : item.begin + i;
    }
}

INLINE void copy_rows(const moe_gemm_params &p, const i32 (&row)[WIDTH / kCopyRows], int width, int step, u32 to)
{
    int vector = threadIdx.x % 8, first = threadIdx.x / 8, k = step * kBlockK + vector * 8;
    u32 place = to + first * 128 + (vector ^ first % 8) * 16;
#pragma unroll
    for (int j = 0; j < WIDTH / kCopyRows; j++)
        if (j * kCopyRows < width) {
            bool there = row[j] >= 0 && k < K;
            copy_async16(place + j * kCopyRows * 128, p.x + (there ? (i64)row[j] * p.x_stride + k : 0), there ? 16 : 0);
        }
}

// This thread's copies for a stage have arrived: wgmma may read them.
INLINE void tell_full(const Shared &sh, u32 at)
{
    fence_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&sh.full[at % STAGES]);
}

INLINE void produce(const moe_gemm_params &p, const Shared &sh)
{
    i32 n_items = *p.n_tiles * kGroups, drawn = 0;
    Item next = {};
    if (threadIdx.x == 0)
        next = item_at(p, draw(p, n_items), n_items);
    u32 at = 0;
    for (u32 round = 0;; round++) {
        if (threadIdx.x == 0) {
            barrier_wait(&sh.item_empty[round % kItems], (round / kItems + 1) & 1);
            sh.item[round % kItems] = next;
            barrier_arrive(&sh.item_full[round % kItems]);
        }
        __syncwarp();
        Item item = take_item(sh, round);
        if (item.expert < 0)
            break;
        int width = (item.count + 31) / 32 * 32;
        i32 row[WIDTH / kCopyRows];
        rows_of(p, item, row);
#pragma unroll 1
        for (int k = 0; k < kSteps; k++, at++) {
            u32 s = at % STAGES;
            barrier_wait(&sh.empty[s], (at / STAGES + 1) & 1); // in the first round this does not wait
            bring_weights(p, sh, item, round, k);
            if (threadIdx.x == 0) {
                if (k == 0)
                    drawn = draw(p, n_items);
                if (k == kSteps / 2)
                    next = item_at(p, drawn, n_items);
            }
            __syncwarp();
            copy_rows(p, row, width, k, shared_address(sh.stages + s * kStage));
            copy_async_commit();
            if (at >= kLag) {
                copy_async_wait<kLag>();
                tell_full(sh, at - kLag);
            }
        }
    }
    copy_async_wait<0>();
    for (u32 i = at < kLag ? 0 : at - kLag; i < at; i++)
        tell_full(sh, i);
}

/* ---- warpgroups 1 and 2 ---- */

template <int N> INLINE void multiply(float *acc, const u32 *a, u64 b, int accumulate)
{
    if constexpr (N == 32)
        wgmma_m64n32k16_rs(acc, a, b, accumulate);
    else if constexpr (N == 64)
        wgmma_m64n64k16_rs(acc, a, b, accumulate);
    else if constexpr (N == 96)
        wgmma_m64n96k16_rs(acc, a, b, accumulate);
    else
        wgmma_m64n128k16_rs(acc, a, b, accumulate);
}

// Loads the quants of chunks 2 i and 2 i + 1 of a unit. Those of types with 4 to 6 bits come together.
template <int CHUNKS> INLINE void load_half(const u8 *unit, int lane, int i, Unit &u)
{
    if constexpr (kBytes)
        load_shared<16>(unit + i * 512 + lane * 16, u.low + 4 * i);
    else if (i == 0)
        load_quants<CHUNKS>(unit, lane, u);
}

// Multiplies unit w_at of the weights' ring, CHUNKS chunks of 32 columns, by the stages of x from `at` on.
template <int N, int CHUNKS>
INLINE void multiply_unit(const Shared &sh, u32 w_at, u32 at, bool first, float (&acc)[kBlocks * WIDTH / 2],
                          u32 (&a)[2][8])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, thread = threadIdx.x % 128;
    u32 s = w_at % W_STAGES;
    const u8 *low = (const u8 *)sh.w + s * kWStage + 2 * warp * kTilePart, *high = low + kTilePart;
    constexpr int kApart = 16 * kTilePart; // of blocks
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++)
        barrier_wait(&sh.full[(at + i) % STAGES], (at + i) / STAGES & 1);
#pragma unroll
    for (int b = 0; b < kBlocks; b++, low += kApart, high += kApart) {
        Unit u, v;
        // super-scales lie behind their unit here
        LaneScale scale_low = my_scale<CHUNKS>(low - unit_bytes(4), low);
        LaneScale scale_high = my_scale<CHUNKS>(high - unit_bytes(4), high);
        float *sums = acc + b * WIDTH / 2;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (c % 2 == 0) {
                load_half<CHUNKS>(low, lane, c / 2, u);
                load_half<CHUNKS>(high, lane, c / 2, v);
            }
            if (b == kBlocks - 1 && c == CHUNKS - 2) { // all quants are in registers
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(&sh.w_empty[s]);
            }
            u32(&to)[8] = a[c % 2];
            dequantise_pair(u, v, c, scale_low, scale_high, to);
            u32 x = shared_address(sh.stages + (at + c / 2) % STAGES * kStage) + c % 2 * 64;
            wgmma_fence();
            multiply<N>(sums, to, smem_descriptor(x, 16, SWIZZLE_ATOM), !(first && c == 0));
            multiply<N>(sums, to + 4, smem_descriptor(x + 32, 16, SWIZZLE_ATOM), 1);
            wgmma_commit();
            if (b < kBlocks - 1 || c < CHUNKS - 1)
                WGMMA_WAIT(1); // the chunk before this one
            else
                WGMMA_WAIT(0);
            if (thread == 0 && CHUNKS > 2 && b == kBlocks - 1 && c == 2)
                barrier_arrive(&sh.empty[at % STAGES]);
        }
    }
    if (thread == 0)
        barrier_arrive(&sh.empty[(at + CHUNKS / 2 - 1) % STAGES]);
}

template <int N> INLINE void multiply_item(const Shared &sh, u32 round, float (&acc)[kBlocks * WIDTH / 2])
{
    constexpr int kWhole = kUnits - (kTail > 0);
    u32 at = round * kSteps, w_at = round * kUnits, a[2][8];
#pragma unroll 1
    for (int i = 0; i < kWhole; i++)
        multiply_unit<N, 4>(sh, w_at + i, at + 2 * i, i == 0, acc, a);
    if constexpr (kTail > 0)
        multiply_unit<N, 2>(sh, w_at + kWhole, at + 2 * kWhole, kWhole == 0, acc, a);
}

// Run by one thread.
INLINE void init_barriers(const Shared &sh)
{
    for (int s = 0; s < STAGES; s++) {
        barrier_init(&sh.full[s], 4);  // one arrival a warp that copies
        barrier_init(&sh.empty[s], 2); // one arrival a consumer warpgroup
    }
    for (int i = 0; i < kItems; i++) {
        barrier_init(&sh.item_full[i], 1);
        barrier_init(&sh.item_empty[i], 12); // every warp
    }
}

KERNEL __launch_bounds__(384, 1) moe_quant_sm90(const __grid_constant__ moe_gemm_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES], w_empty[W_STAGES], item_full[kItems],
        item_empty[kItems];
    __shared__ Item items[kItems];
    Shared sh = {};
    sh.stages = first_atom(raw);
    sh.out = sh.stages + STAGES * kStage; // 4 buffers of kPartBytes
    sh.w = sh.out + 4 * kPartBytes;
    sh.full = full, sh.empty = empty, sh.item_full = item_full, sh.item_empty = item_empty, sh.item = items;
    sh.w_empty = w_empty;
    if (threadIdx.x == 0) {
        init_barriers(sh);
        for (int s = 0; s < W_STAGES; s++)
            barrier_init(&w_empty[s], 8); // every warp that multiplies
        barrier_init_done();
    }
    __syncthreads();
    pdl_wait();
    if (threadIdx.x < 128) {
        SETMAXNREG_DEC(88);
        produce(p, sh);
    } else {
        SETMAXNREG_INC(208);
        consume_items(p, sh);
    }
    pdl_go();
}
