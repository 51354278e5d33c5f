// The product of head_linear.cu for many tokens, with tiles of both operands in shared memory.
//
//   y[t, h] = ( rest | W[h] in ),  x[t, h] = ( in | rest )
//
// Grid: x = 128 outputs, y = heads, z = 128 tokens. Eight warps, two along the tokens and four along the outputs, have
// 64 x 32 each, and share a ring of STAGES steps of 64 columns (cp.async). The CTAs of the first outputs also copy
// `rest`. Lane q of four takes columns 8 q .. 8 q + 7 of 32, as in head_linear.cu, so results have the same bits.
// Results turn around in shared memory and leave in vectors of 16 bytes.
// Bytes: x once for each block of outputs and W once for each block of tokens, from L2. Bound by the tensor cores.
// Template: IN, OUT, REST (multiples of 8), STAGES.
#include "head_linear_params.h"

constexpr int kXHead = IN + REST, kYHead = REST + OUT, kThreads = 256, kTile = 128, kStep = 64;
constexpr int kSteps = (IN + kStep - 1) / kStep, kM = 4, kN = 4; // fragments of 16 tokens and of 8 outputs of a warp
constexpr u32 kOperand = kTile * kStep * 2, kStageBytes = 2 * kOperand;

// Address of 16-byte chunk c of row r. Two neighbouring rows, which a load touches at once, lie in all banks.
INLINE u32 at(u32 r, u32 c) { return r * (kStep * 2) + (c ^ (r & 1) << 2) * 16; }

// Copies a step's columns of 128 rows; zeros for what is not there. A thread has the same chunk of every 32nd row, of
// which `from` is the first one in step 0, and `rows` are there.
INLINE void fetch(u32 to, const u16 *from, i32 stride, i32 rows, int step)
{
    bool inside = step * kStep + threadIdx.x % 8 * 8 < IN;
    to += at(threadIdx.x / 8, threadIdx.x % 8);
    from += step * kStep;
#pragma unroll
    for (int k = 0; k < kTile / 32; k++)
        copy_async16(to + k * 32 * kStep * 2, inside && k * 32 < rows ? from + (i64)k * 32 * stride : from,
                     inside && k * 32 < rows ? 16 : 0);
}

INLINE void add_step(float (&acc)[kM][kN][4], const char *x, const char *w, int token, int out)
{
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll 1
    for (int k = 0; k < kStep / 32; k++) {
        uint4 b[kN];
#pragma unroll
        for (int n = 0; n < kN; n++)
            b[n] = load16(w + at(out + n * 8 + g, k * 4 + q));
#pragma unroll
        for (int m = 0; m < kM; m++) {
            uint4 a = load16(x + at(token + m * 16 + g, k * 4 + q));
            uint4 d = load16(x + at(token + m * 16 + g + 8, k * 4 + q));
#pragma unroll
            for (int n = 0; n < kN; n++) {
                mma_bf16(acc[m][n], a.x, d.x, a.y, d.y, b[n].x, b[n].y);
                mma_bf16(acc[m][n], a.z, d.z, a.w, d.w, b[n].z, b[n].w);
            }
        }
    }
}

// A warp's 64 x 32 results: into its part of shared memory, and from there to y.
INLINE void store(const head_linear_params &p, const float (&acc)[kM][kN][4], char *shared, i32 token, int out)
{
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    char *mine = shared + threadIdx.x / 32 * (kM * 16 * kN * 16);
#pragma unroll
    for (int m = 0; m < kM; m++)
#pragma unroll
        for (int n = 0; n < kN; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int r = m * 16 + h * 8 + g;
                *(u32 *)(mine + r * (kN * 16) + (n ^ (r / 2 & 3)) * 16 + q * 4) =
                    pack_bf16(acc[m][n][2 * h], acc[m][n][2 * h + 1]);
            }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kM * 16 * kN / 32; k++) {
        int i = k * 32 + lane, r = i / kN, c = i % kN;
        if (token + r < p.n_tokens && out + c * 8 < OUT)
            store16(p.y + (i64)(token + r) * p.y_stride + (i64)blockIdx.y * kYHead + REST + out + c * 8,
                    load16(mine + r * (kN * 16) + (c ^ (r / 2 & 3)) * 16));
    }
}

INLINE void copy_rest(const head_linear_params &p, i32 token0)
{
    constexpr int kVecs = REST / 8;
    for (int i = threadIdx.x; i < kTile * kVecs; i += kThreads) {
        i32 t = token0 + i / (kVecs ? kVecs : 1), c = i % (kVecs ? kVecs : 1) * 8;
        if (t < p.n_tokens)
            store16(p.y + (i64)t * p.y_stride + (i64)blockIdx.y * kYHead + c,
                    load16(p.x + (i64)t * p.x_stride + (i64)blockIdx.y * kXHead + IN + c));
    }
}

KERNEL __launch_bounds__(kThreads, 2) head_linear_tiles(const __grid_constant__ head_linear_params p)
{
    extern __shared__ __align__(128) char shared[];
    u32 base = shared_address(shared);
    int warp = threadIdx.x / 32, token = warp / 4 * 64, out = warp % 4 * 32;
    i32 token0 = blockIdx.z * kTile, out0 = blockIdx.x * kTile;
    // the thread's first row, and how many are there from it on
    i32 row = threadIdx.x / 8, x_rows = p.n_tokens - token0 - row, w_rows = OUT - out0 - row;
    const u16 *x = p.x + (i64)(x_rows > 0 ? token0 + row : 0) * p.x_stride + blockIdx.y * kXHead + threadIdx.x % 8 * 8;
    const u16 *w = p.w + ((i64)blockIdx.y * OUT + (w_rows > 0 ? out0 + row : 0)) * IN + threadIdx.x % 8 * 8;
    float acc[kM][kN][4] = {};
    pdl_go();
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        fetch(base + s * kStageBytes + kOperand, w, IN, w_rows, s);
    pdl_wait();
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        fetch(base + s * kStageBytes, x, p.x_stride, x_rows, s);
        copy_async_commit();
    }
    if (REST && blockIdx.x == 0)
        copy_rest(p, token0);
#pragma unroll 1
    for (int step = 0; step < kSteps; step++) {
        copy_async_wait<STAGES - 2>();
        __syncthreads(); // the step is there, and nobody reads the one before it any more
        int ahead = step + STAGES - 1;
        if (ahead < kSteps) {
            u32 stage = base + ahead % STAGES * kStageBytes;
            fetch(stage, x, p.x_stride, x_rows, ahead);
            fetch(stage + kOperand, w, IN, w_rows, ahead);
        }
        copy_async_commit();
        const char *stage = shared + step % STAGES * kStageBytes;
        add_step(acc, stage, stage + kOperand, token, out);
    }
    copy_async_wait<0>();
    __syncthreads();
    store(p, acc, shared, token0 + token, out0 + out);
}
