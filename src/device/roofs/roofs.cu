// Kernels that measure the most a device can do: its roofs (device/roofs/roofs.h). They do no useful work.
//
// Every kernel ends with a conditional write that never happens: no sum takes the value `never`. It keeps the compiler
// from removing the work.
// ---- reading ----
// Grid: a few CTAs of 512 threads per multiprocessor. The grid walks `passes` times over [p, p + 16 n); each thread has
// 8 loads of 16 bytes in flight. Bytes: 16 n passes. The memory holds zeros.
#include "roofs_params.h"

KERNEL __launch_bounds__(512) roofs_read(const __grid_constant__ roofs_read_params p)
{
    u64 stride = (u64)gridDim.x * 512, first = (u64)blockIdx.x * 512 + threadIdx.x;
    u32 sum = 0;
    for (int pass = 0; pass < p.passes; pass++)
        for (u64 i = first; i < p.n; i += 8 * stride) {
            uint4 v[8];
#pragma unroll
            for (int k = 0; k < 8; k++)
                v[k] = i + k * stride < p.n ? load_weights16(p.p + 16 * (i + k * stride)) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum |= v[k].x | v[k].y | v[k].z | v[k].w;
        }
    if (sum == p.never)
        *p.out = sum;
}

// ---- copying ----
// The same grid. It copies [p, p + 16 n) to [p + 16 n, p + 32 n), `passes` times. Bytes: 32 n passes.
KERNEL __launch_bounds__(512) roofs_copy(const __grid_constant__ roofs_copy_params p)
{
    u64 stride = (u64)gridDim.x * 512, first = (u64)blockIdx.x * 512 + threadIdx.x;
    for (int pass = 0; pass < p.passes; pass++)
        for (u64 i = first; i < p.n; i += 4 * stride) {
            uint4 v[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k * stride < p.n)
                    v[k] = load16(p.p + 16 * (i + k * stride));
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k * stride < p.n)
                    store16(p.p + 16 * (p.n + i + k * stride), v[k]);
        }
}

// ---- computing ----

// Fused multiply-adds on 16 independent numbers per thread, 256 threads. FLOPs: 32 per thread and round.
KERNEL __launch_bounds__(256) roofs_fp32(const __grid_constant__ roofs_compute_params p)
{
    float a[16], x = 1.f - (float)threadIdx.x * 1e-6f, y = (float)blockIdx.x * 1e-6f;
#pragma unroll
    for (int i = 0; i < 16; i++)
        a[i] = (float)i;
    for (int r = 0; r < p.rounds; r++)
#pragma unroll
        for (int i = 0; i < 16; i++)
            a[i] = a[i] * x + y;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
        sum += a[i];
    if (__float_as_uint(sum) == p.never)
        *p.out = 1;
}

// The operands are noise and not zeros, because the power that a multiplier draws, and so the clock, depends on their
// bits.
INLINE u32 noise(u32 i)
{
    i = (i ^ i >> 16) * 0x45d9f3bu;
    i = (i ^ i >> 16) * 0x45d9f3bu;
    return 0x3f803f80u ^ ((i ^ i >> 16) & 0x807f807fu); // two bf16 of magnitude 1 to 2
}

// mma.sync m16n8k16 on 8 independent tiles per warp, 8 warps. FLOPs: 8 * 4096 per warp and round.
KERNEL __launch_bounds__(256) roofs_bf16_sm80(const __grid_constant__ roofs_compute_params p)
{
    float c[8][4];
    u32 a[4], b[2];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            c[i][k] = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = noise(threadIdx.x * 8 + i);
    b[0] = noise(threadIdx.x * 8 + 4);
    b[1] = noise(threadIdx.x * 8 + 5);
    for (int r = 0; r < p.rounds; r++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            mma_bf16(c[i], a[0], a[1], a[2], a[3], b[0], b[1]);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    if (__float_as_uint(sum) == p.never)
        *p.out = 1;
}

// ---- an empty kernel ----
// With PDL it lets the next one start at once and then waits for the one before it, as every kernel of a step does.
KERNEL roofs_empty(const __grid_constant__ roofs_compute_params p)
{
    pdl_go();
    pdl_wait();
    if (p.rounds == -1)
        *p.out = 1;
}
