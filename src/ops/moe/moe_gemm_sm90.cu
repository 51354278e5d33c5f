// The experts' products for many tokens: a grouped GEMM over the slots of each expert, bf16, wgmma and TMA (sm_90a).
//
//   UP:    h[i, j] = act(gate_e[j, :] . x[token]) * (up_e[j, :] . x[token])
//   down:  part[order[i], j] = down_e[j, :] . h[i, :]          bf16; moe_combine.cu weights and adds them
//
// i is a place in `order`; token = order[i] / K_USED.
//
// weights [experts, UP ? 2 ROWS : ROWS, K] bf16, gate before up; without gates (moe_act.cuh) UP has ROWS of up alone,
// which are read like down's. moe_group.cu has sorted the slots by expert, and has cut each expert's into tiles of up
// to WIDTH. As in moe_expert.cu the weights are the rows of a product and the slots its columns: an item is 128
// weight rows (64 gate rows and their 64 up rows) of a tile of slots. wgmma takes any multiple of 32 columns, so a
// tile costs what its slots need, and few slots of many experts stream the weights.
//
// Grid: one CTA of 384 threads an SM; items are drawn from a ticket, because their sizes differ. The groups of rows of
// a tile are neighbours: its slots, and the weights of an expert with several tiles, come from L2.
//
//   warpgroup 0      brings STAGES steps of 64 columns: one thread the weights by TMA, all of them the slots' rows by
//                    cp.async, because these lie anywhere. A stage is told full kLag steps later, when its copies have
//                    arrived. Thread 0 also draws the items and tells them to the others, one ahead.
//   warpgroups 1, 2  64 weight rows each. UP: a box of TMA has 8 gate rows, then their 8 up rows, and so on, so that a
//                    thread has both sums of a pair. Results turn around in shared memory (stmatrix), 64 slots at a
//                    time, and leave in whole rows of 64 or 128 bytes.
//
// The sum over K runs in steps of 16 in rising order, whatever the tile: a slot's result depends on nothing else.
// Bytes: the weights of every expert in use, once while its tiles run together; x or h once a group of rows, from L2.
// Roof: memory bandwidth up to some 100 slots an expert, the bf16 tensor cores beyond.
// Template: UP, K, ROWS (outputs), K_USED, ACT, WIDTH 32 | 64 | 128 | 256, STAGES, BIAS (each product has the expert's
// bias added).
constexpr int kWBytes = 128 * 64 * 2, kXAt = kWBytes, kStage = kWBytes + WIDTH * 64 * 2, kFullArrivals = 5;
constexpr int kBlocks = 1, kOrder = 0;
constexpr bool kRowsEarly = true;
#include "moe_items_sm90.cuh"

INLINE void bring_weights(const moe_gemm_params &p, const Shared &sh, const Item &item, u32 round, int step)
{
    u32 s = (round * kSteps + step) % STAGES;
    u64 *full = &sh.full[s];
    char *to = sh.stages + s * kStage;
    if (threadIdx.x > 0)
        return;
    barrier_expect(full, kWBytes);
    if constexpr (kGate)
        tma_load_5d(&p.w, full, to, step * kBlockK, 0, 0, item.group * (kOutputs / 8), item.expert);
    else
        tma_load_3d(&p.w, full, to, step * kBlockK, item.group * kOutputs, item.expert);
}

template <int N> INLINE void multiply(float *acc, u64 a, u64 b, int accumulate)
{
    if constexpr (N == 32)
        wgmma_m64n32k16_ss(acc, a, b, accumulate);
    else if constexpr (N == 64)
        wgmma_m64n64k16_ss(acc, a, b, accumulate);
    else if constexpr (N == 96)
        wgmma_m64n96k16_ss(acc, a, b, accumulate);
    else if constexpr (N == 128)
        wgmma_m64n128k16_ss(acc, a, b, accumulate);
    else if constexpr (N == 160)
        wgmma_m64n160k16_ss(acc, a, b, accumulate);
    else if constexpr (N == 192)
        wgmma_m64n192k16_ss(acc, a, b, accumulate);
    else if constexpr (N == 224)
        wgmma_m64n224k16_ss(acc, a, b, accumulate);
    else
        wgmma_m64n256k16_ss(acc, a, b, accumulate);
}

template <int N> INLINE void multiply_item(const Shared &sh, u32 round, float (&acc)[kBlocks * WIDTH / 2])
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    u32 at = round * kSteps;
#pragma unroll 1
    for (int k = 0; k < kSteps; k++, at++) {
        u32 w = shared_address(sh.stages + at % STAGES * kStage), x = w + kWBytes;
        barrier_wait(&sh.full[at % STAGES], at / STAGES & 1);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kBlockK / 16; i++)
            multiply<N>(acc, smem_descriptor(w + group * (kWBytes / 2) + i * 32, 16, SWIZZLE_ATOM),
                        smem_descriptor(x + i * 32, 16, SWIZZLE_ATOM), !(k == 0 && i == 0));
        wgmma_commit();
        WGMMA_WAIT(1); // the stage before this one has been read
        if (k > 0 && thread == 0)
            barrier_arrive(&sh.empty[(at - 1) % STAGES]);
    }
    WGMMA_WAIT(0);
    if (thread == 0)
        barrier_arrive(&sh.empty[(at - 1) % STAGES]);
}

KERNEL __launch_bounds__(384, 1) moe_gemm_sm90(const __grid_constant__ moe_gemm_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES], item_full[kItems], item_empty[kItems];
    __shared__ Item items[kItems];
    Shared sh = {};
    sh.stages = raw + (-shared_address(raw) & (SWIZZLE_ATOM - 1)); // written so, loads from it are known to be shared
    sh.out = sh.stages + STAGES * kStage; // 4 buffers of kPartBytes
    sh.full = full, sh.empty = empty, sh.item_full = item_full, sh.item_empty = item_empty, sh.item = items;
    if (threadIdx.x == 0) {
        tma_prefetch_map(&p.w);
        init_barriers(sh);
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
