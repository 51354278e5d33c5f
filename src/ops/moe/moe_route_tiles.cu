// The router of moe_route.cu for many tokens: tensor cores make the logits.
//
//   logits   a CTA: TOKENS x PER of them                                     -> p.logits [tokens, EXPERTS]
//   choice   the last CTA of a block of tokens: a warp chooses for a token   -> expert, weight
//
// A weight is fp32: the sum of three bf16, which have its upper, middle and lower bits. Products of x, which is bf16,
// with each of them are exact in fp32, so three mma's are as accurate as fp32 arithmetic. Where a warp's weights of 16
// columns are numbers of bf16 anyway, as in most checkpoints, it leaves two of them out.
//
// Grid: x = blocks of TOKENS tokens, y = blocks of PER experts. Eight warps, two along the tokens and four along the
// experts, share a ring of STAGES steps of 64 columns (cp.async); those of weights begin before the kernel's turn.
// Columns may be summed in any order, so of 16 columns lane q of four takes 4 q .. 4 q + 3 of both operands: one load.
// The order of the sum differs from moe_route.cu's, so deterministic programs do not run this kernel.
// Bytes: x once for each block of experts, the router once for each block of tokens, from L2.
// Template: HIDDEN (a multiple of 8), EXPERTS (up to 1024), K_USED (up to 16), NORMALISE, TOKENS (32, 64), PER (64),
// STAGES, BIAS (logits have the expert's bias added), SIGMOID, GROUPS (0: none, up to 32), GROUPS_USED.
#include "moe_route_choice.cuh"

constexpr int kWarps = 8, kStep = 64, kSteps = (HIDDEN + kStep - 1) / kStep;
constexpr int kWarpTokens = TOKENS / 2, kWarpExperts = PER / 4, kM = kWarpTokens / 16, kN = kWarpExperts / 8;
constexpr u32 kXBytes = TOKENS * kStep * 2, kStageBytes = kXBytes + PER * kStep * 4;
static_assert(TOKENS % 32 == 0 && PER % 32 == 0 && STAGES >= 2, "whole fragments");

// Addresses of 16-byte chunk c of row r. The exclusive or spreads over all banks the rows that a load touches at once.
INLINE u32 x_at(u32 r, u32 c) { return r * (kStep * 2) + (c ^ (r & 3) << 1) * 16; }
INLINE u32 w_at(u32 r, u32 c) { return kXBytes + r * (kStep * 4) + (c ^ (r & 1) << 2) * 16; }

// Copies a step's columns of the block's experts, or of its tokens; zeros for what is not there. A thread has one chunk
// of every 16th or 32nd row, of which `from` is the first one in step 0 and `rows` are there.
INLINE void fetch_weights(u32 stage, const float *from, i32 rows, int step)
{
    u32 r = threadIdx.x / 16, c = threadIdx.x % 16;
    bool inside = step * kStep + (int)c * 4 < HIDDEN;
#pragma unroll
    for (int k = 0; k < PER / 16; k++)
        copy_async16(stage + w_at(r, c) + k * 16 * kStep * 4, from + (i64)k * 16 * HIDDEN + step * kStep,
                     inside && k * 16 < rows ? 16 : 0);
}

INLINE void fetch_tokens(u32 stage, const u16 *from, i32 stride, i32 rows, int step)
{
    u32 r = threadIdx.x / 8, c = threadIdx.x % 8;
    bool inside = step * kStep + (int)c * 8 < HIDDEN;
#pragma unroll
    for (int k = 0; k < TOKENS / 32; k++)
        copy_async16(stage + x_at(r, c) + k * 32 * kStep * 2, from + (i64)k * 32 * stride + step * kStep,
                     inside && k * 32 < rows ? 16 : 0);
}

// The upper halves of two numbers: bf16, cut off.
INLINE u32 upper(float low, float high) { return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632); }
INLINE float rest(float v) { return v - __uint_as_float(__float_as_uint(v) & 0xffff0000u); }

// Products with the first kParts of the weights' three parts. Those of the lower two have sums of their own, so that
// fewer mma's wait for each other.
template <int kParts>
INLINE void multiply(float (&sum)[2][kM][kN][4], const uint2 (&x)[kM][2], const float4 (&weight)[kN])
{
#pragma unroll
    for (int n = 0; n < kN; n++) {
        float4 w = weight[n];
#pragma unroll
        for (int part = 0; part < kParts; part++) {
            u32 low = upper(w.x, w.y), high = upper(w.z, w.w);
#pragma unroll
            for (int m = 0; m < kM; m++)
                mma_bf16(sum[part > 0][m][n], x[m][0].x, x[m][1].x, x[m][0].y, x[m][1].y, low, high);
            w = make_float4(rest(w.x), rest(w.y), rest(w.z), rest(w.w));
        }
    }
}

// The warp's part of a step's products.
INLINE void add_step(float (&sum)[2][kM][kN][4], const char *stage, int first_token, int first_expert)
{
    constexpr int kK = kStep / 16;
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    uint2 x[kK][kM][2];
    float4 w[kK][kN];
    u32 more = 0;
#pragma unroll
    for (int k = 0; k < kK; k++) {
#pragma unroll
        for (int m = 0; m < kM; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                x[k][m][h] =
                    *(const uint2 *)(stage + x_at(first_token + m * 16 + h * 8 + g, k * 2 + q / 2) + q % 2 * 8);
#pragma unroll
        for (int n = 0; n < kN; n++) {
            float4 v = *(const float4 *)(stage + w_at(first_expert + n * 8 + g, k * 4 + q));
            more |= __float_as_uint(v.x) | __float_as_uint(v.y) | __float_as_uint(v.z) | __float_as_uint(v.w);
            w[k][n] = v;
        }
    }
    if (__any_sync(~0u, more & 0xffffu)) {
#pragma unroll
        for (int k = 0; k < kK; k++)
            multiply<3>(sum, x[k], w[k]);
    } else {
#pragma unroll
        for (int k = 0; k < kK; k++)
            multiply<1>(sum, x[k], w[k]);
    }
}

INLINE void store_logits(const moe_route_params &p, const float (&sum)[2][kM][kN][4], i32 token, i32 end, int expert)
{
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int m = 0; m < kM; m++)
#pragma unroll
        for (int n = 0; n < kN; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                i32 t = token + m * 16 + i / 2 * 8 + g, e = expert + n * 8 + q * 2 + i % 2;
                if (t < end && e < EXPERTS)
                    p.logits[(i64)t * EXPERTS + e] = sum[0][m][n][i] + sum[1][m][n][i] + (BIAS ? p.bias[e] : 0.f);
            }
}

KERNEL __launch_bounds__(kWarps * 32) moe_route_tiles(const __grid_constant__ moe_route_params p)
{
    extern __shared__ __align__(128) char shared[];
    u32 base = shared_address(shared);
    int warp = threadIdx.x / 32, first_token = warp / 4 * kWarpTokens, first_expert = warp % 4 * kWarpExperts;
    i32 begin = blockIdx.x * TOKENS, end = min(begin + TOKENS, p.n_tokens);
    i32 real = min(end, *p.n_real); // the step's block: no kernel writes it
    pdl_go();
    if (begin < real) {
        // what is there from the thread's first row on
        i32 experts = EXPERTS - (i32)blockIdx.y * PER - (i32)threadIdx.x / 16;
        i32 tokens = real - begin - (i32)threadIdx.x / 8;
        const float *w = p.router + (i64)(EXPERTS - experts) * HIDDEN + threadIdx.x % 16 * 4;
        const u16 *x = p.x + (i64)(real - tokens) * p.x_stride + threadIdx.x % 8 * 8;
        float sum[2][kM][kN][4] = {};
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++)
            fetch_weights(base + s * kStageBytes, w, experts, s);
        pdl_wait();
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            fetch_tokens(base + s * kStageBytes, x, p.x_stride, tokens, s);
            copy_async_commit();
        }
#pragma unroll 1
        for (int step = 0; step < kSteps; step++) {
            copy_async_wait<STAGES - 2>();
            __syncthreads(); // the step is there, and nobody reads the one before it any more
            int ahead = step + STAGES - 1;
            if (ahead < kSteps) {
                u32 stage = base + ahead % STAGES * kStageBytes;
                fetch_weights(stage, w, experts, ahead);
                fetch_tokens(stage, x, p.x_stride, tokens, ahead);
            }
            copy_async_commit();
            add_step(sum, shared + step % STAGES * kStageBytes, first_token, first_expert);
        }
        store_logits(p, sum, begin + first_token, real, blockIdx.y * PER + first_expert);
        if (!last_of(p.tickets + blockIdx.x, gridDim.y))
            return;
    } else {
        pdl_wait();
        if (blockIdx.y > 0)
            return;
    }
    choose_all(p, begin, end, real, kWarps);
}
