// The experts' products of one token: weights stream through registers from one piece of work to the next.
//
//   UP:    h[j, r] = act(gate_e[r, :] . x) * (up_e[r, :] . x)          e = expert[j], j < K_USED
//   down:  y[r] (+)= sum_j weight[j] * (down_e[r, :] . h[j])           rows of -1 (other ranks' experts) add nothing
//
// BIAS: each of the three products has the expert's bias added. Weights are as in moe_expert.cu, and so is the product:
// a unit is a group of rows (8 pairs, or 16) of one expert, the weights are the 16 rows of mma m16n8k16, and WARPS
// warps share out K in chunks of 32. SETS such sets make a CTA. While a set multiplies a unit it loads the next one's
// weights into the registers that become free, so loads are under way all the time.
//   UP    the grid's sets take the units (expert, group) in turn
//   down  a CTA has one group of rows; its sets take the experts in turn, and it adds them in rising j
// Sums have the order of moe_expert.cu and moe_sum.cu: a token has the same bits in any company.
//
// PDL: UP lets the next kernel start when it has itself waited for the router. So down may read `expert` and `route`,
// and load the first weights, before it waits for UP. All are of one run of the op, so no other kernel is between.
// Bytes: the weights of K_USED experts; the roof is memory bandwidth.
// Template: K, ROWS, WARPS, SETS, UP, ACT, K_USED, BIAS, ACCUMULATE.
#include "moe_act.cuh"
#include "moe_params.h"

constexpr int kThreads = WARPS * SETS * 32, kGroupOut = kGate ? 8 : 16;
constexpr int kGroups = (ROWS + kGroupOut - 1) / kGroupOut, kUnits = UP ? K_USED * kGroups : K_USED;
constexpr int kChunks = (K + 31) / 32, kSteps = (kChunks + WARPS - 1) / WARPS;
// Steps in blocks of equal size, as many as fit into registers.
constexpr int kBlocks = (kSteps + 7) / 8, kAhead = (kSteps + kBlocks - 1) / kBlocks;
static_assert(K % 8 == 0 && K_USED <= 32, "16-byte loads; a lane keeps an expert's number");

struct Unit {
    int j, group;
    i32 expert; // -1: there is no such unit, or its expert is another rank's
};

// Number n of this warp's set. `chosen`: lane j has expert[j].
INLINE Unit unit_at(int n, i32 chosen)
{
    int set = threadIdx.x / (WARPS * 32);
    int at = UP ? (n * (int)gridDim.x + (int)blockIdx.x) * SETS + set : n * SETS + set;
    int j = min(UP ? at / kGroups : at, K_USED - 1);
    i32 expert = __shfl_sync(~0u, chosen, j);
    return {j, UP ? at % kGroups : (int)blockIdx.x, at < kUnits ? expert : -1};
}

// The 16 rows of a unit, as lane (g, q) reads them.
struct Stream {
    const u16 *low, *high;
    bool there;
    int warp, q;

    __forceinline__ Stream(const moe_expert_params &p, const Unit &u)
    {
        int lane = threadIdx.x % 32, g = lane / 4;
        warp = threadIdx.x / 32 % WARPS, q = lane % 4;
        there = u.expert >= 0;
        int j0 = u.group * kGroupOut, row_low = min(j0 + g, ROWS - 1),
            row_high = kGate ? ROWS + row_low : min(j0 + 8 + g, ROWS - 1);
        const u16 *w = (const u16 *)p.weights + (i64)max(u.expert, 0) * (kGate ? 2 : 1) * ROWS * K + q * 8;
        low = w + (i64)row_low * K, high = w + (i64)row_high * K;
    }
    __forceinline__ int column(int step) const { return (step * WARPS + warp) * 32; }
    __forceinline__ bool inside(int k) const { return K % (WARPS * 32) == 0 ? true : k + q * 8 < K; }
    __forceinline__ void fetch(int step, uint4 &l, uint4 &h) const
    {
        int k = column(step);
        bool read = there && step < kSteps && inside(k);
        l = read ? load_weights16(low + k) : make_uint4(0, 0, 0, 0);
        h = read ? load_weights16(high + k) : make_uint4(0, 0, 0, 0);
    }
};

struct Sums { // a unit's, in shared memory: rows 0 .. 7 gate and 8 .. 15 up, or 16 rows
    float part[WARPS][16];
};

// A row's sum over the warps, in rising order.
INLINE float sum_of(const Sums &s, int row)
{
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < WARPS; k++)
        sum += s.part[k][row];
    return sum;
}

INLINE void finish_up(const moe_expert_params &p, const Unit &u, const Sums &s, int r)
{
    int row = u.group * kGroupOut + r;
    if (r >= kGroupOut || row >= ROWS || u.expert < 0)
        return;
    float gate = sum_of(s, r), up = kGate ? sum_of(s, r + 8) : 0.f;
    if constexpr (BIAS) {
        gate += p.bias[u.expert * ROWS + row];
        if constexpr (kGate)
            up += p.up_bias[u.expert * ROWS + row];
    }
    ((u16 *)p.y)[(i64)u.j * ROWS + row] = f32_bf16(gated(gate, up, p.limit));
}

// The CTA's rows, of all experts. `before`: y of the thread's row, where that is added to. `chosen` and `weight`: lane
// j has expert[j] and route[j].
INLINE void finish_down(const moe_expert_params &p, const Sums *s, float (*share)[16], i32 chosen, float weight,
                        float before)
{
    static_assert(UP || K_USED * 16 <= kThreads, "a thread multiplies one row of one expert");
    __syncthreads();
    int i = threadIdx.x, j = min(i / 16, K_USED - 1), r = i % 16;
    i32 expert = __shfl_sync(~0u, chosen, j);
    float by = __shfl_sync(~0u, weight, j);
    if (i < K_USED * 16) {
        int row = blockIdx.x * kGroupOut + r;
        float sum = sum_of(s[j], r);
        if constexpr (BIAS)
            sum += expert >= 0 && row < ROWS ? p.bias[expert * ROWS + row] : 0.f;
        share[j][r] = expert >= 0 ? __fmul_rn(by, sum) : 0.f;
    }
    __syncthreads();
    int row = blockIdx.x * kGroupOut + threadIdx.x;
    if (threadIdx.x >= 16 || row >= ROWS)
        return;
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < K_USED; j++)
        sum += share[j][threadIdx.x];
    u16 *y = (u16 *)p.y + row;
    *y = f32_bf16(sum + before);
}

KERNEL __launch_bounds__(kThreads, 512 / kThreads) moe_token(const __grid_constant__ moe_expert_params p)
{
    __shared__ Sums sums[UP ? 2 * SETS : K_USED];
    __shared__ float share[UP ? 1 : K_USED][16];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, set = threadIdx.x / (WARPS * 32);
    int g = lane / 4, q = lane % 4;
    if (UP)
        pdl_wait();
    i32 chosen = lane < K_USED ? load_from_l2(p.expert + lane) : -1;
    float weight = 0.f, before = 0.f;
    if (!UP && lane < K_USED)
        weight = __int_as_float(load_from_l2((const i32 *)p.route + lane));
    Unit now = unit_at(0, chosen);
    uint4 wl[kAhead], wh[kAhead];
    Stream from(p, now);
#pragma unroll
    for (int i = 0; i < kAhead; i++)
        from.fetch(i, wl[i], wh[i]);
    pdl_go();
    if (!UP)
        pdl_wait();
    if (!UP && ACCUMULATE && threadIdx.x < 16 && blockIdx.x * kGroupOut + threadIdx.x < ROWS)
        before = bf16_f32(((const u16 *)p.y)[blockIdx.x * kGroupOut + threadIdx.x]);
    int per_round = UP ? (int)gridDim.x * SETS : SETS, first = UP ? (int)blockIdx.x * SETS : 0;
#pragma unroll 1
    for (int n = 0; n * per_round + first < kUnits; n++) {
        Unit next = unit_at(n + 1, chosen);
        Stream then(p, next);
        const u16 *x = p.x + (i64)(UP ? 0 : now.j) * p.x_stride + q * 8;
        float c[4] = {};
#pragma unroll
        for (int b = 0; b < kBlocks; b++)
#pragma unroll
            for (int i = 0; i < kAhead; i++) {
                int step = b * kAhead + i, k = from.column(step);
                bool read = from.there && step < kSteps && from.inside(k);
                uint4 v = read ? load16(x + k) : make_uint4(0, 0, 0, 0);
                mma_bf16(c, wl[i].x, wh[i].x, wl[i].y, wh[i].y, v.x, v.y);
                mma_bf16(c, wl[i].z, wh[i].z, wl[i].w, wh[i].w, v.z, v.w);
                if (b + 1 < kBlocks)
                    from.fetch(step + kAhead, wl[i], wh[i]);
                else
                    then.fetch(i, wl[i], wh[i]);
            }
        Sums &s = sums[UP ? n % 2 * SETS + set : now.j];
        if (q == 0 && (UP || n * SETS + set < K_USED)) {
            s.part[warp][g] = c[0];
            s.part[warp][g + 8] = c[2];
        }
        if constexpr (UP) {
            __syncthreads();
            finish_up(p, now, s, threadIdx.x % (WARPS * 32));
        }
        now = next;
        from = then;
    }
    if constexpr (!UP)
        finish_down(p, sums, share, chosen, weight, before);
}
