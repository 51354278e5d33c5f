// y[t, j] = epilogue(scale * x[t, :] . W[j, :] + bias[j]) + residual[t, j]     in E4M3 for tens of tokens (sm_90a)
//
// x [tokens, K] as fp8_rows.cu makes it; W in quantised tiles (linear_quant.h) of FP8; y [tokens, rows] bf16 (paired:
// [tokens, rows / 2]).
//
// The weights are the rows of a wgmma, tokens its columns. A CTA has 128 weight rows (PAIR: 64 gate rows and their up
// rows) and TOKENS tokens. SPLIT CTAs of a cluster share a tile along K and add their sums as gemm_split_sm90.cu does.
// A lane's bytes of a quantised tile are what wgmma wants of its first operand: they go from shared memory to registers
// and from there into the product as they are.
//
//   warpgroups 0, 1  have 64 weight rows each. The products of a unit of 128 columns are summed by the tensor cores;
//                    such a sum times the scales of its row and its token is added to the total, in fp32.
//   warpgroup 2      one lane brings units by TMA: those of 16 tiles, for the first stages before pdl_wait(), those of
//                    the tokens, and their scales.
//
// Grid: row tiles x token tiles x SPLIT, the token tiles of a row tile neighbours. Up to 64 tokens two CTAs share an
// SM. Bytes: W once, from L2 for each further tile of tokens; x once for each row tile, from L2.
// Template: K, TOKENS 32 | 64 | 128, SPLIT 1 | 2 | 4 | 8, STAGES, PAIR (0 none, 1 silu, 2 gelu), BIAS, RESIDUAL.
#define BITS 0
#define OFFSET 0
#define FORM 0
#define OUT_F32 0
#include "ptx_sm90.cuh"
#include "quant_tile.cuh"
#include "linear_order.cuh"
#include "linear_fp8_params.h"

constexpr int kConsumers = 256, kThreads = kConsumers + 128, kTiles = 16;
constexpr int kColumns = PAIR ? 64 : 128; // of y
constexpr int kUnit = unit_bytes(4), kWStage = kTiles * kUnit, kXStage = TOKENS * 128, kScales = TOKENS * 4;
constexpr int kSumStride = 128 + 4; // floats: lanes of a store hit 32 banks
constexpr bool kTwoCtas = TOKENS <= 64;
static_assert(K % 128 == 0, "whole units");
static_assert(TOKENS * kSumStride * 4 <= STAGES * (kXStage + kWStage), "the sums lie over the stages");

struct Part {
    int tile, token;        // the first of both
    int first, units, rank; // first unit of this CTA, and its number of units
};

#include "tile_sums_sm90.cuh"

INLINE Part my_part(const linear_fp8_params &p)
{
    int rank = blockIdx.x % SPLIT, item = blockIdx.x / SPLIT, across = (p.n_tokens + TOKENS - 1) / TOKENS;
    int first = rank * kUnits / SPLIT, end = (rank + 1) * kUnits / SPLIT;
    return {item / across * (kColumns / 8), item % across * TOKENS, first, end - first, rank};
}

struct Shared {
    char *x, *w;
    float *scale;
    u64 *full, *empty;
};

/* ---- the lane that brings ---- */

INLINE void load_w(const linear_fp8_params &p, const Shared &sh, const Part &t, int k)
{
    int s = k % STAGES;
    barrier_expect(&sh.full[s], kWStage + kXStage + kScales);
    tma_load_4d(&p.w, &sh.full[s], sh.w + s * kWStage, 0, t.first + k, t.tile, 0);
}

INLINE void load_x(const linear_fp8_params &p, const Shared &sh, const Part &t, int k)
{
    int s = k % STAGES, unit = t.first + k;
    tma_load_2d(&p.x, &sh.full[s], sh.x + s * kXStage, unit * 64, t.token); // in elements of two bytes
    bulk_load(&sh.full[s], sh.scale + s * TOKENS, p.x_scale + (i64)unit * p.padded + t.token, kScales);
}

INLINE void produce(const linear_fp8_params &p, const Shared &sh, const Part &t)
{
    int early = min(STAGES, t.units);
#pragma unroll 1 // one thread does this, with few registers
    for (int k = 0; k < early; k++)
        load_w(p, sh, t, k);
    pdl_wait();
#pragma unroll 1
    for (int k = 0; k < early; k++)
        load_x(p, sh, t, k);
#pragma unroll 1
    for (int k = early; k < t.units; k++) {
        barrier_wait(&sh.empty[k % STAGES], (k / STAGES + 1) & 1);
        load_w(p, sh, t, k);
        load_x(p, sh, t, k);
    }
}

/* ---- the warpgroups that multiply ---- */

INLINE void multiply(float *acc, const u32 *a, u64 b, int accumulate)
{
    if constexpr (TOKENS == 32)
        wgmma_m64n32k32_rs_e4m3(acc, a, b, accumulate);
    else if constexpr (TOKENS == 64)
        wgmma_m64n64k32_rs_e4m3(acc, a, b, accumulate);
    else
        wgmma_m64n128k32_rs_e4m3(acc, a, b, accumulate);
}

// Adds the products of this CTA's unit k to this lane's totals.
INLINE void consume_unit(const Shared &sh, int k, float (&total)[TOKENS / 2])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, s = k % STAGES;
    const u8 *low = (const u8 *)sh.w + s * kWStage + (PAIR ? 1 : 2) * warp * kUnit;
    const u8 *high = low + (PAIR ? kTiles / 2 : 1) * kUnit;
    u64 columns = smem_descriptor(shared_address(sh.x + s * kXStage), 16, SWIZZLE_ATOM);
    float acc[TOKENS / 2];
    u32 a[4][4];
    Unit u, v;
    barrier_wait(&sh.full[s], k / STAGES & 1);
    load_quants<4>(low, lane, u);
    load_quants<4>(high, lane, v);
    float of_low = row_scale<4>(low, low, lane / 4, 0).scale[0];
    float of_high = row_scale<4>(high, high, lane / 4, 0).scale[0];
#pragma unroll
    for (int c = 0; c < 4; c++)
        a[c][0] = u.low[2 * c], a[c][1] = v.low[2 * c], a[c][2] = u.low[2 * c + 1], a[c][3] = v.low[2 * c + 1];
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < 4; c++)
        multiply(acc, a[c], columns + c * 32 / 16, c > 0);
    wgmma_commit();
    WGMMA_WAIT(0);
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        wgmma_touch(acc[i]);
    const float2 *scale = (const float2 *)(sh.scale + s * TOKENS) + lane % 4;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
        float2 of = scale[4 * j];
        total[4 * j] = fmaf(acc[4 * j], of_low * of.x, total[4 * j]);
        total[4 * j + 1] = fmaf(acc[4 * j + 1], of_low * of.y, total[4 * j + 1]);
        total[4 * j + 2] = fmaf(acc[4 * j + 2], of_high * of.x, total[4 * j + 2]);
        total[4 * j + 3] = fmaf(acc[4 * j + 3], of_high * of.y, total[4 * j + 3]);
    }
    __syncwarp();
    if (lane == 0)
        barrier_arrive(&sh.empty[s]);
}

// Leaves this CTA's sums where the stages were.
INLINE void consume(const Shared &sh, const Part &t)
{
    float total[TOKENS / 2] = {};
#pragma unroll 1
    for (int k = 0; k < t.units; k++)
        consume_unit(sh, k, total);
    leave_sums((float *)sh.x, total);
}

KERNEL __launch_bounds__(kThreads, kTwoCtas ? 2 : 1) linear_fp8_sm90(const __grid_constant__ linear_fp8_params p)
{
    extern __shared__ char raw[];
    __shared__ u64 full[STAGES], empty[STAGES];
    Shared sh = {first_atom(raw), 0, 0, full, empty};
    sh.w = sh.x + STAGES * kXStage;
    sh.scale = (float *)(sh.w + STAGES * kWStage);
    Part t = my_part(p);
    if (threadIdx.x == kConsumers) {
        tma_prefetch_map(&p.x);
        tma_prefetch_map(&p.w);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], kConsumers / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    pdl_go();
    if (threadIdx.x < kConsumers) {
        if (kTwoCtas)
            SETMAXNREG_INC(104);
        else
            SETMAXNREG_INC(232);
        consume(sh, t);
        pdl_wait(); // the residual may be of the kernel before
    } else {
        if (kTwoCtas)
            SETMAXNREG_DEC(32);
        else
            SETMAXNREG_DEC(40);
        if (threadIdx.x == kConsumers)
            produce(p, sh, t);
        __syncwarp();
        pdl_wait();
    }
    add_sums(p, t, (const float *)sh.x);
}
