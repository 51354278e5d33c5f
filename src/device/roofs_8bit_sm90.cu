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

INLINE void wgmma_int8(int *d /* [128] */, u64 a, u64 b, int accumulate)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %130, 0;"
        " wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},"
        " %128, %129, p; }"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),
          "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]),
          "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]),
          "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]),
          "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]),
          "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]),
          "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]),
          "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]),
          "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]), "+r"(d[71]),
          "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]), "+r"(d[78]), "+r"(d[79]),
          "+r"(d[80]), "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]), "+r"(d[85]), "+r"(d[86]), "+r"(d[87]),
          "+r"(d[88]), "+r"(d[89]), "+r"(d[90]), "+r"(d[91]), "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]),
          "+r"(d[96]), "+r"(d[97]), "+r"(d[98]), "+r"(d[99]), "+r"(d[100]), "+r"(d[101]), "+r"(d[102]), "+r"(d[103]),
          "+r"(d[104]), "+r"(d[105]), "+r"(d[106]), "+r"(d[107]),
          "+r"(d[108]), "+r"(d[109]), "+r"(d[110]), "+r"(d[111]),
          "+r"(d[112]), "+r"(d[113]), "+r"(d[114]), "+r"(d[115]),
          "+r"(d[116]), "+r"(d[117]), "+r"(d[118]), "+r"(d[119]),
          "+r"(d[120]), "+r"(d[121]), "+r"(d[122]), "+r"(d[123]), "+r"(d[124]), "+r"(d[125]), "+r"(d[126]), "+r"(d[127])
        : "l"(a), "l"(b), "r"(accumulate));
}

INLINE void wgmma_fp8(float *d /* [128] */, u64 a, u64 b, int accumulate)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %130, 0;"
        " wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},"
        " %128, %129, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),
          "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
          "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "r"(accumulate));
}

KERNEL __launch_bounds__(256, 1) roofs_int8_sm90(const __grid_constant__ roofs_compute_params p)
{
    extern __shared__ char raw[];
    u32 *tiles = (u32 *)(((size_t)raw + SWIZZLE_ATOM - 1) & ~(size_t)(SWIZZLE_ATOM - 1));
    for (u32 i = threadIdx.x; i < (2 * kTileA + kTileB) / 4; i += 256)
        tiles[i] = noise(i);
    fence_async_shared();
    __syncthreads();
    u32 a = shared_address(tiles) + threadIdx.x / 128 * kTileA, b = shared_address(tiles) + 2 * kTileA;
    int acc[128];
    for (int r = 0; r < p.rounds; r++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_int8(acc, smem_descriptor(a + k * 32, 16, SWIZZLE_ATOM),
                       smem_descriptor(b + k * 32, 16, SWIZZLE_ATOM), r + k > 0);
        wgmma_commit();
        WGMMA_WAIT(1);
    }
    WGMMA_WAIT(0);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) {
        asm volatile("" : "+r"(acc[i])::"memory");
        sum += acc[i];
    }
    if ((u32)sum == p.never)
        *p.out = 1;
}

KERNEL __launch_bounds__(256, 1) roofs_fp8_sm90(const __grid_constant__ roofs_compute_params p)
{
    extern __shared__ char raw[];
    u32 *tiles = (u32 *)(((size_t)raw + SWIZZLE_ATOM - 1) & ~(size_t)(SWIZZLE_ATOM - 1));
    for (u32 i = threadIdx.x; i < (2 * kTileA + kTileB) / 4; i += 256)
        tiles[i] = noise(i);
    fence_async_shared();
    __syncthreads();
    u32 a = shared_address(tiles) + threadIdx.x / 128 * kTileA, b = shared_address(tiles) + 2 * kTileA;
    float acc[128];
    for (int r = 0; r < p.rounds; r++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_fp8(acc, smem_descriptor(a + k * 32, 16, SWIZZLE_ATOM),
                      smem_descriptor(b + k * 32, 16, SWIZZLE_ATOM), r + k > 0);
        wgmma_commit();
        WGMMA_WAIT(1);
    }
    WGMMA_WAIT(0);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) {
        wgmma_touch(acc[i]);
        sum += acc[i];
    }
    if (__float_as_uint(sum) == p.never)
        *p.out = 1;
}
