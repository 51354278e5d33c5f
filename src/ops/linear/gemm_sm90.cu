// y = epilogue(scale * x W^T + bias) (+ residual) for many rows: bf16, wgmma and TMA (sm_90a).
//
//   x [M, K], W [N, K] row-major bf16; y [M, N] bf16 or fp32, row strides in elements
//   PAIR 1, 2: W is gate [N/2, K] over up [N/2, K]; y [M, N/2] = silu(gate) * up, or gelu_tanh(gate) * up
//
// Grid: min(tiles, SMs) CTAs of 384 threads, persistent over tiles of BM x BN. Warpgroup 0 is the producer: one
// thread keeps STAGES tiles of x and W in flight by TMA. Warpgroups 1 and 2 multiply: each owns 64 rows of the tile
// and issues m64nBNk16 wgmmas on the stage that has arrived. It waits for the stage before that one only, so that the
// tensor cores always have the next products queued. With PAIR a W tile is BN/2 gate rows over BN/2 up rows, so that a
// thread holds both values of a pair.
//
// Epilogue: meanwhile TMA has loaded the residual tile into the C buffer. The consumers add to it in place, and one
// thread per warpgroup stores its 64 rows by TMA, which runs while the next tile is computed. (Stored straight from
// registers, 8192 x 4096 x 1024 took 222 us instead of 121: the stores have 16 bytes, and nothing overlaps them.) fp32
// output (logits) is stored directly.
//
// CTAS 2: clusters of two CTAs, whose tiles are below each other. Each brings its own x and half of the W tile, which
// TMA writes into both.
//
// Bytes: M K + N K + M N elements at least. W is read once for every BM rows (CTAS of them), from L2 if tiles run in
// groups of GROUP_M. Roof: bf16 tensor cores from about M = 256 on, DRAM below. The sum over K runs in steps of 16 in
// rising order for every M, so a row's result does not depend on the other rows. With SEGMENTS > 1, K is cut into that
// many segments (linear_order.cuh). Two of them at a time have a set of sums each, and all sums are added in rising
// order. The result has the same bits as that of gemm_split_sm90.cu with as many segments.
//
// Template parameters: BN 128 | 256 (64 without PAIR), STAGES, SEGMENTS (1; more with BN 64 | 128), PAIR, BIAS,
// RESIDUAL, OUT_F32, CTAS 1 | 2. BM is 128.
#include "ptx_sm90.cuh"
#include "linear_order.cuh"
#include "linear_sm90_params.h"

#define BM 128 // two consumer warpgroups of 64 rows
#define BK 64 /* 128 bytes: one swizzle atom wide */

#define GROUP_M 8
#define TILE_X_BYTES (BM * BK * 2)
#define TILE_W_BYTES (BN * BK * 2)
#define ACC (BN / 2)
#define W_PARTS (CTAS > 1 || PAIR ? 2 : 1) /* boxes of a W tile */
#define SETS (SEGMENTS > 1 ? 2 : 1) /* of accumulators: for two segments, between which there is no wait */

#if BN == 256
#define WGMMA wgmma_m64n256k16_ss
#elif BN == 128
#define WGMMA wgmma_m64n128k16_ss
#else
#define WGMMA wgmma_m64n64k16_ss
#endif

INLINE int cluster_rank() { return blockIdx.x % CTAS; }

/* Row *tm and column *tn of this CTA's tile in step t of the persistent walk of clusters. A cluster's tiles are below
 * each other. GROUP_M rows of tiles are walked together, so that their W tiles come from L2. */
INLINE void tile_at(int t, int rows_m, int tiles_n, int *tm, int *tn)
{
    constexpr int kGroup = GROUP_M / CTAS;
    int group = t / (kGroup * tiles_n), first = group * kGroup;
    int height = min(kGroup, rows_m - first);
    int in = t - group * kGroup * tiles_n;
    *tm = (first + in % height) * CTAS + cluster_rank();
    *tn = in / height;
}

/* ---- the C buffer: for each 64 columns a tile of 128 rows, swizzled as TMA expects it ---- */

#if PAIR
#if BN < 128
#error the columns are halved, and the C buffer holds whole tiles of 64
#endif
#define OUT_COLS (BN / 2)
#else
#define OUT_COLS BN
#endif
#define C_TILE (BM * 128)
#define C_TILES ((OUT_COLS + 63) / 64)

INLINE u32 *c_pair(char *c, int row, int col)
{
    return (u32 *)(c + col / 64 * C_TILE + row * 128 + (((col % 64) / 8 ^ row % 8) * 16) + col % 8 * 2);
}

/* Applies the epilogue to two neighbouring columns of one row of the tile. The results go to the C buffer, or with
 * OUT_F32 straight to memory. */
INLINE void finish_pair(const gemm_sm90_params &p, char *c, int tm, int tn, int row, int col,
                                                   float a, float b)
{
#if BIAS
    int first = min(tn * BN + col, p.n - 2); /* columns beyond the last are thrown away */
    a = scaled(a, p.scale, p.bias[first]);
    b = scaled(b, p.scale, p.bias[first + 1]);
#else
    a = scaled(a, p.scale);
    b = scaled(b, p.scale);
#endif
#if OUT_F32
    if (tm * BM + row < p.m && tn * BN + col < p.n)
        *(float2 *)(p.y_f32 + (size_t)(tm * BM + row) * p.y_stride + tn * BN + col) = make_float2(a, b);
#else
    u32 *at = c_pair(c, row, col);
#if RESIDUAL
    a = plus(a, bf16_low(*at));
    b = plus(b, bf16_high(*at));
#endif
    *at = pack_bf16(a, b);
#endif
}

#if PAIR == 1
#define ACTIVATION silu
#else
#define ACTIVATION gelu_tanh
#endif

/* Applies the epilogue to one thread's accumulators. With PAIR the gate is in the first half of the columns. */
INLINE void finish_all(const gemm_sm90_params &p, char *c, const float *acc, int tm, int tn,
                                                  int row, int lane)
{
#pragma unroll
    for (int j = 0; j < OUT_COLS / 8; j++) {
        int col = j * 8 + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float a = acc[4 * j + 2 * half], b = acc[4 * j + 2 * half + 1];
#if PAIR
            const float *up = acc + BN / 4 + 4 * j + 2 * half;
            *c_pair(c, row + 8 * half, col) = pack_bf16(ACTIVATION(scaled(a, p.scale)) * scaled(up[0], p.scale),
                                                        ACTIVATION(scaled(b, p.scale)) * scaled(up[1], p.scale));
#else
            finish_pair(p, c, tm, tn, row + 8 * half, col, a, b);
#endif
        }
    }
}

/* Starts the TMA stores of a warpgroup's 64 rows of the C buffer. It does not wait for them: finish_tile or consume
 * does, before the buffer is written again. */
INLINE void send_c(const gemm_sm90_params &p, char *c, int tm, int tn, int group, int thread)
{
    fence_async_shared();
    named_barrier(1 + group, 128);
    if (thread != 0)
        return;
#pragma unroll
    for (int j = 0; j < C_TILES; j++)
        tma_store_2d(&p.y, c + j * C_TILE + group * 64 * 128, tn * OUT_COLS + j * 64, tm * BM + group * 64);
    tma_store_commit();
}

typedef struct shared {
    char *tiles, *c;
    u64 *full, *empty, *c_full, *c_empty;
} shared;

/* Brings the W tile of a step. Each CTA of a cluster brings a half of it, to both. */
INLINE void bring_w(const gemm_sm90_params &p, u64 *full, char *to, int col, int tn)
{
#pragma unroll
    for (int i = 0; i < W_PARTS; i++) {
        int row = PAIR ? i * (p.n / 2) + tn * OUT_COLS : tn * BN + i * (BN / W_PARTS);
        char *part = to + i * (TILE_W_BYTES / W_PARTS);
        if (CTAS == 1)
            tma_load_2d(&p.w, full, part, col, row);
        else if (i == cluster_rank())
            tma_load_2d_multicast(&p.w, full, part, col, row, (1 << CTAS) - 1);
    }
}

INLINE void produce(const gemm_sm90_params &p, const shared &sh, int rows_m, int tiles_n,
                                               int steps)
{
    u32 at = 0, round = 0;
    for (int t = blockIdx.x / CTAS; t < rows_m * tiles_n; t += gridDim.x / CTAS, round++) {
        int tm, tn;
        tile_at(t, rows_m, tiles_n, &tm, &tn);
#pragma unroll 1 // one thread does this, with 40 registers
        for (int k = 0; k < steps; k++, at++) {
            u32 s = at % STAGES;
            barrier_wait(&sh.empty[s], (at / STAGES + 1) & 1); /* in the first round this does not wait */
            barrier_expect(&sh.full[s], TILE_X_BYTES + TILE_W_BYTES);
            char *to = sh.tiles + s * (TILE_X_BYTES + TILE_W_BYTES);
            tma_load_2d(&p.x, &sh.full[s], to, k * BK, tm * BM);
            bring_w(p, &sh.full[s], to + TILE_X_BYTES, k * BK, tn);
#if RESIDUAL
            if (k == min(STAGES, steps) - 1) { /* after the first stages, which are more urgent */
                barrier_wait(sh.c_empty, (round + 1) & 1);
                barrier_expect(sh.c_full, C_TILES * C_TILE);
                for (int j = 0; j < 2 * C_TILES; j++)
                    tma_load_2d(&p.residual, sh.c_full, sh.c + j / 2 * C_TILE + j % 2 * 64 * 128,
                                tn * BN + j / 2 * 64, tm * BM + j % 2 * 64);
            }
#endif
        }
    }
}

/* This warpgroup has read a stage. Every CTA that brings a part of the next tile to it waits for that. */
INLINE void free_stage(u64 *empty)
{
    if (CTAS == 1)
        barrier_arrive(empty);
    else
#pragma unroll
        for (int i = 0; i < CTAS; i++)
            barrier_arrive_at(empty, i);
}

INLINE void multiply_stage(float *acc, u32 x, u32 w, int first)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BK / 16; k++)
        WGMMA(acc, smem_descriptor(x + k * 32, 16, SWIZZLE_ATOM), smem_descriptor(w + k * 32, 16, SWIZZLE_ATOM),
              !(first && k == 0));
    wgmma_commit();
}

INLINE void finish_tile(const gemm_sm90_params &p, const shared &sh, const float *acc, int tm,
                                                   int tn, u32 round)
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    int row = group * 64 + thread / 32 * 16 + lane / 4;
#if RESIDUAL
    barrier_wait(sh.c_full, round & 1);
#elif !OUT_F32
    if (thread == 0)
        tma_store_wait_read(); /* the stores of the previous tile have read the buffer */
    named_barrier(1 + group, 128);
#endif
    finish_all(p, sh.c, acc, tm, tn, row, lane);
#if !OUT_F32
    send_c(p, sh.c, tm, tn, group, thread);
#endif
}

INLINE void consume(const gemm_sm90_params &p, const shared &sh, int rows_m, int tiles_n,
                                               int steps)
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    u32 at = 0, round = 0;
    for (int t = blockIdx.x / CTAS; t < rows_m * tiles_n; t += gridDim.x / CTAS, round++) {
        int tm, tn;
        tile_at(t, rows_m, tiles_n, &tm, &tn);
        float acc[SETS][ACC];
#if SEGMENTS > 2
        float total[ACC];
#else
        float *total = acc[0];
#endif
        int k = 0;
#pragma unroll 1
        for (int segment = 0; segment < SEGMENTS; segment += SETS) {
#pragma unroll
            for (int set = 0; set < SETS; set++) {
                int begin = k, end = min(steps, segment_begin(segment + set + 1, SEGMENTS, p.k) / BK);
                for (; k < end; k++, at++) {
                    u32 s = at % STAGES;
                    u32 x = shared_address(sh.tiles + s * (TILE_X_BYTES + TILE_W_BYTES));
                    barrier_wait(&sh.full[s], (at / STAGES) & 1);
                    multiply_stage(acc[set], x + group * 64 * BK * 2, x + TILE_X_BYTES, k == begin);
#if RESIDUAL
                    if (k == 0 && round > 0 && thread == 0) { /* the C buffer is read: the next residual may come */
                        tma_store_wait_read();
                        barrier_arrive(sh.c_empty);
                    }
#endif
                    WGMMA_WAIT(1); /* the stage before this one has been read */
                    if ((k > begin || set > 0) && thread == 0)
                        free_stage(&sh.empty[(at - 1) % STAGES]);
                }
            }
            WGMMA_WAIT(0);
            if (thread == 0)
                free_stage(&sh.empty[(at - 1) % STAGES]);
#pragma unroll
            for (int set = 0; set < SETS; set++)
#pragma unroll
                for (int i = 0; i < ACC; i++)
                    wgmma_touch(acc[set][i]);
#if SEGMENTS > 1
#pragma unroll
            for (int i = 0; i < ACC; i++)
                total[i] = segment == 0 ? acc[0][i] + acc[1][i] : (total[i] + acc[0][i]) + acc[1][i];
#endif
        }
        finish_tile(p, sh, total, tm, tn, round);
    }
    if (thread == 0)
        tma_store_wait_all();
}

KERNEL __launch_bounds__(384, 1) gemm_sm90(const __grid_constant__ gemm_sm90_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES], c_full, c_empty;
    shared sh = {first_atom(raw), 0, full, empty, &c_full, &c_empty};
    sh.c = sh.tiles + STAGES * (TILE_X_BYTES + TILE_W_BYTES); /* C_TILES * C_TILE bytes, unless OUT_F32 */
    int rows_m = (p.m + BM * CTAS - 1) / (BM * CTAS), steps = (p.k + BK - 1) / BK;
    int tiles_n = ((PAIR ? p.n / 2 : p.n) + OUT_COLS - 1) / OUT_COLS;

    if (threadIdx.x == 0) {
        tma_prefetch_map(&p.x);
        tma_prefetch_map(&p.w);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 2 * CTAS); /* an arrival of each consumer warpgroup */
        }
        barrier_init(&c_full, 1);
        barrier_init(&c_empty, 2);
        barrier_init_done();
    }
    cluster_sync<CTAS>();
    pdl_wait();
    if (threadIdx.x < 128) {
        SETMAXNREG_DEC(40);
        if (threadIdx.x == 0)
            produce(p, sh, rows_m, tiles_n, steps);
        __syncwarp();
    } else {
        SETMAXNREG_INC(232);
        consume(p, sh, rows_m, tiles_n, steps);
    }
    if (CTAS > 1)
        cluster_sync<CTAS>(); /* no CTA ends before the other one's last arrival at its barriers */
    pdl_go();
}
