// Which experts a token goes to: p = softmax(x Wr^T) in fp32, or sigmoid(x Wr^T) with a bias for the choice and groups
// of experts (moe.h); the K_USED largest (ties: lower index), in falling order, with p or p / (sum of the chosen) as
// weights, times `scale` and the expert's own factor. Padding tokens, and choices that are another rank's experts, get
// expert -1 and weight 0.
//
//   logits   every warp: TOKENS x PER logits, lanes share out HIDDEN         -> p.logits [tokens, EXPERTS]
//   choice   the last CTA of a block of tokens: a warp chooses for a token   -> expert, weight
//
// x [tokens, HIDDEN] bf16, router [EXPERTS, HIDDEN] fp32, expert [tokens, K_USED] int32, weight likewise fp32.
// Grid: x = blocks of TOKENS * TOKEN_WARPS tokens, y = blocks of PER * EXPERT_WARPS experts. Each block of tokens has
// a ticket.
// Order of a logit's sum: lane l adds columns 8 l .. 8 l + 7, 256 + 8 l ... in rising order, then the lanes are added
// as warp_sum() does. TOKENS, PER and the warps do not change it, so a token's choice has the same bits in any step.
// Bytes: the router once for every block of tokens, from L2 after the first; one token is bound by latency (its
// weights are fetched before the kernel's turn), many by fp32 arithmetic.
// Template: HIDDEN (a multiple of 8), EXPERTS (up to 1024), K_USED (up to 16), NORMALISE, TOKENS, PER, TOKEN_WARPS,
// EXPERT_WARPS, BIAS (logits have the expert's bias added), SIGMOID, GROUPS (0: none, up to 32), GROUPS_USED.
#include "moe_route_choice.cuh"

constexpr int kWarps = TOKEN_WARPS * EXPERT_WARPS, kBlockTokens = TOKENS * TOKEN_WARPS, kSums = TOKENS * PER;
constexpr int kChunks = (HIDDEN + 255) / 256, kMostAhead = PER == 1 ? 12 : PER == 2 ? 4 : 1;
// Chunks of weights in registers: rounds of equal size, for all but the first are loaded behind the turn.
constexpr int kRounds = (kChunks + kMostAhead - 1) / kMostAhead, kAhead = (kChunks + kRounds - 1) / kRounds;
static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0, "a lane ends with one sum");

// Adds v[i] over the warp in warp_sum()'s order, for all i at once: lane l returns sum number l / (32 / N).
template <int N> INLINE float warp_sums(float (&v)[N], int lane)
{
    int d = 16;
#pragma unroll
    for (int n = N / 2; n >= 1; n /= 2, d /= 2) {
        bool upper = lane & d;
#pragma unroll
        for (int i = 0; i < n; i++) {
            float keep = upper ? v[n + i] : v[i], give = upper ? v[i] : v[n + i];
            v[i] = keep + __shfl_xor_sync(~0u, give, d);
        }
    }
#pragma unroll
    for (; d; d /= 2)
        v[0] += __shfl_xor_sync(~0u, v[0], d);
    return v[0];
}

INLINE uint4 router16(const float *w)
{
    return TOKEN_WARPS == 1 ? load_weights16(w) : load16(w); // several warps read it: through L1
}

INLINE void add_products(float &sum, const f32x8 &x, const uint4 &low, const uint4 &high)
{
    sum = fmaf(x.v[0], __uint_as_float(low.x), sum);
    sum = fmaf(x.v[1], __uint_as_float(low.y), sum);
    sum = fmaf(x.v[2], __uint_as_float(low.z), sum);
    sum = fmaf(x.v[3], __uint_as_float(low.w), sum);
    sum = fmaf(x.v[4], __uint_as_float(high.x), sum);
    sum = fmaf(x.v[5], __uint_as_float(high.y), sum);
    sum = fmaf(x.v[6], __uint_as_float(high.z), sum);
    sum = fmaf(x.v[7], __uint_as_float(high.w), sum);
}

// The logits of tokens [first, first + TOKENS) below `end`. Weights of the first chunks are loaded before the turn, and
// before `end`, which comes from memory, is looked at.
INLINE void score(const moe_route_params &p, i32 first, i32 end, int lane, int warp)
{
    int first_expert = (blockIdx.y * EXPERT_WARPS + warp % EXPERT_WARPS) * PER;
    const float *w[PER];
    const u16 *x[TOKENS];
#pragma unroll
    for (int e = 0; e < PER; e++)
        w[e] = p.router + (i64)min(first_expert + e, EXPERTS - 1) * HIDDEN + lane * 8;
    float sum[kSums] = {};
#pragma unroll 1
    for (int c = 0; c < kChunks; c += kAhead) {
        uint4 low[kAhead][PER], high[kAhead][PER];
#pragma unroll
        for (int i = 0; i < kAhead; i++)
#pragma unroll
            for (int e = 0; e < PER; e++) {
                bool inside = (c + i) * 256 + lane * 8 < HIDDEN;
                low[i][e] = inside ? router16(w[e] + (c + i) * 256) : make_uint4(0, 0, 0, 0);
                high[i][e] = inside ? router16(w[e] + (c + i) * 256 + 4) : make_uint4(0, 0, 0, 0);
            }
        if (c == 0) {
            if (SIGMOID && p.choice && blockIdx.y == 0 && threadIdx.x * 32 < EXPERTS)
                prefetch_l2(p.choice + threadIdx.x * 32);
            pdl_go();
            pdl_wait();
#pragma unroll
            for (int t = 0; t < TOKENS; t++)
                x[t] = p.x + (i64)max(min(first + t, end - 1), 0) * p.x_stride + lane * 8;
        }
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            bool inside = (c + i) * 256 + lane * 8 < HIDDEN;
            uint4 v[TOKENS];
#pragma unroll
            for (int t = 0; t < TOKENS; t++)
                v[t] = inside ? load16(x[t] + (c + i) * 256) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int t = 0; t < TOKENS; t++)
#pragma unroll
                for (int e = 0; e < PER; e++)
                    add_products(sum[t * PER + e], unpack8(v[t]), low[i][e], high[i][e]);
        }
    }
    float logit = warp_sums<kSums>(sum, lane);
    int number = lane / (32 / kSums), expert = first_expert + number % PER;
    i32 token = first + number / PER;
    if (lane % (32 / kSums) == 0 && token < end && expert < EXPERTS)
        p.logits[(i64)token * EXPERTS + expert] = BIAS ? logit + p.bias[expert] : logit;
}

KERNEL __launch_bounds__(kWarps * 32) moe_route(const __grid_constant__ moe_route_params p)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i32 begin = blockIdx.x * kBlockTokens, end = min(begin + kBlockTokens, p.n_tokens);
    i32 real = min(end, *p.n_real); // the step's block: no kernel writes it
    if (begin == 0 || begin < real) { // the first block need not wait for n_real
        score(p, begin + warp / EXPERT_WARPS * TOKENS, real, lane, warp);
        if (!last_of(p.tickets + blockIdx.x, gridDim.y))
            return;
    } else {
        pdl_go();
        pdl_wait();
        if (blockIdx.y > 0)
            return;
    }
    choose_all(p, begin, end, real, kWarps);
}
