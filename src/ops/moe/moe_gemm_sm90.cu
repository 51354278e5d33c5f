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
//   warpgroup 0      warp 3 draws the items, one ahead, tells them to the others, and brings their weights by TMA. The
//                    others bring the slots' rows. IN_ORDER: they lie in the order of the slots (h; or x, copied by
//                    moe_gather.cu), and warp 0 brings them by TMA, in boxes of 32 rows. Otherwise warps 0 to 2 copy
//                    them by cp.async from where they lie. Both come in steps of 64 columns, in two rings: the
//                    weights come from DRAM, so their ring is deeper.
//   warpgroups 1, 2  64 weight rows each. UP: a box of TMA has 8 gate rows, then their 8 up rows, and so on, so that a
//                    thread has both sums of a pair. Results turn around in shared memory (stmatrix), 64 slots at a
//                    time, and leave in whole rows of 64 or 128 bytes.
//
// A CTA of down begins where one of UP has ended. It brings weights from then on, and rows of h when all have ended. So
// down has a ticket of its own, and reads the tiles past L1.
// The sum over K runs in steps of 16 in rising order, whatever the tile: a slot's result depends on nothing else.
// Bytes: the weights of every expert in use, once while its tiles run together; x or h once a group of rows, from L2.
// Roof: memory bandwidth up to some 100 slots an expert, the bf16 tensor cores beyond.
// Template: UP, K, ROWS (outputs), K_USED, ACT, WIDTH 32 | 64 | 128 | 256, IN_ORDER, STAGES (of rows), W_STAGES, BIAS
// (each product has the expert's bias added).
constexpr int kBlocks = 1, kOrder = 0;
constexpr bool kRowsEarly = true;
#include "moe_items_sm90.cuh"

constexpr int kWBytes = 128 * 64 * 2, kXBytes = WIDTH * 64 * 2;
constexpr int kBoxRows = 32, kCopyThreads = 96, kCopyRows = kCopyThreads / 8; // rows that cp.async copies at once

/* ---- warpgroup 0 ---- */

INLINE void bring_weights(const moe_gemm_params &p, const Shared &sh, const Item &item, int step, u32 at)
{
    u32 s = at % W_STAGES;
    char *to = sh.w + s * kWBytes;
    barrier_wait(&sh.w_empty[s], (at / W_STAGES + 1) & 1); // in the first round this does not wait
    barrier_expect(&sh.w_full[s], kWBytes);
    if constexpr (kGate)
        tma_load_5d(&p.w, &sh.w_full[s], to, step * kBlockK, 0, 0, item.group * (kOutputs / 8), item.expert);
    else
        tma_load_3d(&p.w, &sh.w_full[s], to, step * kBlockK, item.group * kOutputs, item.expert);
}

// Run by one thread.
INLINE void bring_items(const moe_gemm_params &p, const Shared &sh)
{
    i32 n_items = load_from_l2(p.n_tiles) * kGroups, drawn = 0;
    Item next = item_at(p, draw(p, n_items), n_items);
    u32 at = 0;
    for (u32 round = 0;; round++) {
        Item item = next;
        barrier_wait(&sh.item_empty[round % kItems], (round / kItems + 1) & 1);
        sh.item[round % kItems] = item;
        barrier_arrive(&sh.item_full[round % kItems]);
        if (item.expert < 0)
            break;
#pragma unroll 1
        for (int k = 0; k < kSteps; k++, at++) {
            bring_weights(p, sh, item, k, at);
            if (k == 0)
                drawn = draw(p, n_items);
            if (k == kSteps / 2)
                next = item_at(p, drawn, n_items);
        }
    }
}

// Run by a warp. The last box may have rows of the next tile, whose sums are thrown away.
INLINE void bring_rows(const moe_gemm_params &p, const Shared &sh)
{
    u32 at = 0;
    for (u32 round = 0;; round++, at += kSteps) {
        Item item = take_item(sh, round);
        if (item.expert < 0)
            break;
        int boxes = (item.count + kBoxRows - 1) / kBoxRows;
        if (threadIdx.x % 32 == 0)
#pragma unroll 1
            for (int k = 0; k < kSteps; k++) {
                u32 s = (at + k) % STAGES;
                char *to = sh.stages + s * kXBytes;
                barrier_wait(&sh.empty[s], ((at + k) / STAGES + 1) & 1);
                barrier_expect(&sh.full[s], boxes * kBoxRows * 128);
                for (int b = 0; b < boxes; b++)
                    tma_load_2d(&p.rows, &sh.full[s], to + b * kBoxRows * 128, k * kBlockK,
                                item.begin + b * kBoxRows);
            }
        __syncwarp();
    }
}

// Run by kCopyThreads threads, 8 for a row. A stage is full when the copies of all of them have arrived.
INLINE void copy_rows(const moe_gemm_params &p, const Shared &sh)
{
    constexpr int kEach = (WIDTH + kCopyRows - 1) / kCopyRows;
    int first = threadIdx.x / 8, vector = threadIdx.x % 8;
    static_assert(kCopyRows % 8 == 4, "kCopyRows on, a row is 4 on in its atom");
    u32 even = first * 128 + (vector ^ first % 8) * 16, odd = even ^ 64;
    u32 at = 0;
    for (u32 round = 0;; round++) {
        Item item = take_item(sh, round);
        if (item.expert < 0)
            break;
        i32 row[kEach]; // -1 behind the last
#pragma unroll
        for (int j = 0; j < kEach; j++) {
            i32 i = j * kCopyRows + first;
            row[j] = i >= item.count ? -1 : UP ? p.order[item.begin + i] / K_USED : item.begin + i;
        }
#pragma unroll 1
        for (int k = 0; k < kSteps; k++, at++) {
            u32 s = at % STAGES, to = shared_address(sh.stages + s * kXBytes);
            int column = k * kBlockK + vector * 8;
            u32 bytes = column < K ? 16 : 0;
            const u16 *x = p.x + min(column, K - 8);
            barrier_wait(&sh.empty[s], (at / STAGES + 1) & 1);
#pragma unroll
            for (int j = 0; j < kEach; j++)
                if (row[j] >= 0)
                    copy_async16(to + j * kCopyRows * 128 + (j % 2 ? odd : even), x + (i64)row[j] * p.x_stride, bytes);
            copy_async_arrive(&sh.full[s]);
        }
    }
    copy_async_commit();
    copy_async_wait<0>();
}

/* ---- warpgroups 1 and 2 ---- */

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

// The stages of step `at` have been read. Run by one thread of a warpgroup.
INLINE void free_stages(const Shared &sh, u32 at)
{
    barrier_arrive(&sh.empty[at % STAGES]);
    barrier_arrive(&sh.w_empty[at % W_STAGES]);
}

template <int N> INLINE void multiply_item(const Shared &sh, u32 round, float (&acc)[kBlocks * WIDTH / 2])
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    u32 at = round * kSteps;
#pragma unroll 1
    for (int k = 0; k < kSteps; k++, at++) {
        u32 w = shared_address(sh.w + at % W_STAGES * kWBytes) + group * (kWBytes / 2);
        u32 x = shared_address(sh.stages + at % STAGES * kXBytes);
        barrier_wait(&sh.w_full[at % W_STAGES], at / W_STAGES & 1);
        barrier_wait(&sh.full[at % STAGES], at / STAGES & 1);
        if constexpr (!IN_ORDER)
            fence_async_shared(); // cp.async writes as an ordinary store does
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kBlockK / 16; i++)
            multiply<N>(acc, smem_descriptor(w + i * 32, 16, SWIZZLE_ATOM),
                        smem_descriptor(x + i * 32, 16, SWIZZLE_ATOM), !(k == 0 && i == 0));
        wgmma_commit();
        WGMMA_WAIT(1); // the step before this one
        if (k > 0 && thread == 0)
            free_stages(sh, at - 1);
    }
    WGMMA_WAIT(0);
    if (thread == 0)
        free_stages(sh, at - 1);
}

KERNEL __launch_bounds__(384, 1) moe_gemm_sm90(const __grid_constant__ moe_gemm_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES], w_full[W_STAGES], w_empty[W_STAGES], item_full[kItems],
        item_empty[kItems];
    __shared__ Item items[kItems];
    Shared sh = {};
    sh.stages = first_atom(raw);
    sh.w = sh.stages + STAGES * kXBytes;
    sh.out = sh.w + W_STAGES * kWBytes; // 4 buffers of kPartBytes
    sh.full = full, sh.empty = empty, sh.w_full = w_full, sh.w_empty = w_empty;
    sh.item_full = item_full, sh.item_empty = item_empty, sh.item = items;
    if (threadIdx.x == 0) {
        tma_prefetch_map(&p.w);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], IN_ORDER ? 1 : kCopyThreads);
            barrier_init(&empty[s], 2); // one arrival a warpgroup
        }
        for (int s = 0; s < W_STAGES; s++) {
            barrier_init(&w_full[s], 1);
            barrier_init(&w_empty[s], 2);
        }
        for (int i = 0; i < kItems; i++) {
            barrier_init(&item_full[i], 1);
            barrier_init(&item_empty[i], IN_ORDER ? 9 : 11); // every warp that takes items
        }
        barrier_init_done();
    }
    __syncthreads();
    if constexpr (UP) {
        pdl_wait();
        pdl_go();
    }
    if (threadIdx.x < 128) {
        SETMAXNREG_DEC(88);
        if (threadIdx.x == kCopyThreads)
            bring_items(p, sh);
        __syncwarp();
        if constexpr (!IN_ORDER) {
            if (threadIdx.x < kCopyThreads)
                copy_rows(p, sh);
        } else if (threadIdx.x < 32) {
            if constexpr (!UP)
                pdl_wait();
            bring_rows(p, sh);
        }
    } else {
        SETMAXNREG_INC(208);
        consume_items(p, sh);
    }
    if constexpr (!UP)
        pdl_go();
}
