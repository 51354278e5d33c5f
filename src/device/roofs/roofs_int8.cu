// The int8 roof where there is no wgmma (roofs/roofs.h): mma.sync m16n8k32 on 8 independent tiles per warp, 8 warps.
// OPs: 8 * 8192 per warp and round.
#include "roofs_params.h"

INLINE void mma_int8(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

KERNEL __launch_bounds__(256) roofs_int8(const __grid_constant__ roofs_compute_params p)
{
    int c[8][4];
    u32 a[4], b[2];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            c[i][k] = 0;
    // noise and not zeros, because the power that a multiplier draws, and so the clock, depends on its operands
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = (threadIdx.x * 8 + i) * 0x45d9f3bu;
    b[0] = (threadIdx.x * 8 + 4) * 0x45d9f3bu;
    b[1] = (threadIdx.x * 8 + 5) * 0x45d9f3bu;
    for (int r = 0; r < p.rounds; r++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            mma_int8(c[i], a, b);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    if ((u32)sum == p.never)
        *p.out = 1;
}
