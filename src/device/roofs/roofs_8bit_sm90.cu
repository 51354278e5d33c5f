// wgmma m64n256k32 of 8-bit operands from shared memory, for the int8 and fp8 roofs of sm_90 (roofs_sm90.cu does the
// same in bf16): 2 warpgroups, one CTA per multiprocessor. Each warpgroup multiplies its own tile [64][128] by a common
// one [256][128]: 4 steps of 32 in K. Operations: 4 * 1048576 per warpgroup and round.
#include "ptx_sm90.cuh"
#include "roofs_params.h"

constexpr u32 kTileA = 64 * 128, kTileB = 256 * 128;

// Noise and not zeros, because the power that a multiplier draws, and so the clock, depends on its operands. Bit 3 of
// every byte is clear, so no byte is a NaN of e4m3.
INLINE u32 noise(u32 i)
{
    i = (i ^ i >> 16) * 0x45d9f3bu;
    i = (i ^ i >> 16) * 0x45d9f3bu;
    return (i ^ i >> 16) & 0xf7f7f7f7u;
}

#define FOUR(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define EIGHT(c, i) FOUR(c, i), FOUR(c, i + 4)
#define THIRTY_TWO(c, i) EIGHT(c, i), EIGHT(c, i + 8), EIGHT(c, i + 16), EIGHT(c, i + 24)
// d [128] (+)= a b. `types`: of d, a and b; `constraint`: of d's registers; `scales`: the two factors that fp8 takes.
#define WGMMA_M64N256K32(types, constraint, scales)                                                           \
    asm volatile(                                                                                             \
        "{ .reg .pred p; setp.ne.b32 p, %130, 0;"                                                             \
        " wgmma.mma_async.sync.aligned.m64n256k32." types " "                                                 \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"                              \
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"                    \
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"                    \
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"                    \
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"                    \
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"                    \
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"        \
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},"   \
        " %128, %129, p" scales "; }"                                                                         \
        : THIRTY_TWO(constraint, 0), THIRTY_TWO(constraint, 32), THIRTY_TWO(constraint, 64),                  \
          THIRTY_TWO(constraint, 96)                                                                          \
        : "l"(a), "l"(b), "r"(accumulate))

INLINE void multiply(int *d, u64 a, u64 b, int accumulate) { WGMMA_M64N256K32("s32.s8.s8", "+r", ""); }
INLINE void multiply(float *d, u64 a, u64 b, int accumulate) { WGMMA_M64N256K32("f32.e4m3.e4m3", "+f", ", 1, 1"); }

INLINE void touch(int &v) { asm volatile("" : "+r"(v)::"memory"); }
INLINE void touch(float &v) { wgmma_touch(v); }
INLINE u32 bits_of(int v) { return (u32)v; }
INLINE u32 bits_of(float v) { return __float_as_uint(v); }

template <class T> INLINE void multiply_all(const roofs_compute_params &p)
{
    extern __shared__ char raw[];
    u32 *tiles = (u32 *)(((size_t)raw + SWIZZLE_ATOM - 1) & ~(size_t)(SWIZZLE_ATOM - 1));
    for (u32 i = threadIdx.x; i < (2 * kTileA + kTileB) / 4; i += 256)
        tiles[i] = noise(i);
    fence_async_shared();
    __syncthreads();
    u32 a = shared_address(tiles) + threadIdx.x / 128 * kTileA, b = shared_address(tiles) + 2 * kTileA;
    T acc[128];
    for (int r = 0; r < p.rounds; r++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            multiply(acc, smem_descriptor(a + k * 32, 16, SWIZZLE_ATOM), smem_descriptor(b + k * 32, 16, SWIZZLE_ATOM),
                     r + k > 0);
        wgmma_commit();
        WGMMA_WAIT(1);
    }
    WGMMA_WAIT(0);
    T sum = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) {
        touch(acc[i]);
        sum += acc[i];
    }
    if (bits_of(sum) == p.never)
        *p.out = 1;
}

KERNEL __launch_bounds__(256, 1) roofs_int8_sm90(const __grid_constant__ roofs_compute_params p)
{
    multiply_all<int>(p);
}

KERNEL __launch_bounds__(256, 1) roofs_fp8_sm90(const __grid_constant__ roofs_compute_params p)
{
    multiply_all<float>(p);
}
