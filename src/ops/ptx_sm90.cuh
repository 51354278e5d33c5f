/* One-line wrappers for Hopper's instructions: wgmma, TMA, mbarriers, and moving registers between warpgroups
 * (setmaxnreg). They need sm_90a. The *_sm90.cu kernels include this file; ptx.cuh comes before it.
 *
 * Tiles in shared memory are [rows][64] bf16 with the 128-byte swizzle, as TMA writes them: 8 rows of 128 bytes are
 * an atom of 1,024 bytes, and the atoms of a tile follow each other along the rows.
 *   K-major operand (rows are M or N, the 64 columns are K): SBO = 1024, a step of 16 in K is +32 bytes
 *   MN-major operand (rows are K, the 64 columns are N): SBO = 1024 along K, LBO = bytes between
 *   neighbouring tiles of 64 columns; a step of 16 in K is 2 atoms, +2048 bytes
 */

/* ---- mbarriers ---- */

INLINE void barrier_init(u64 *b, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}

INLINE void barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

INLINE void barrier_expect(u64 *b, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}

INLINE void barrier_arrive(u64 *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

/* Arrives once all of this thread's cp.async so far have arrived. It is one of the arrivals that the barrier counts. */
INLINE void copy_async_arrive(u64 *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

/* Returns once the phase of this parity has completed. */
INLINE void barrier_wait(u64 *b, u32 parity)
{
    asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
                 " @p bra DONE; bra WAIT; DONE: }" ::"r"(shared_address(b)), "r"(parity)
                 : "memory");
}

/* Named barrier over `threads` threads of the CTA. */
INLINE void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Arrives at a named barrier without waiting. */
INLINE void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- TMA ---- */

typedef struct __align__(64) cu_tensor_map {
    char bytes[128];
} cu_tensor_map;

INLINE void tma_prefetch_map(const cu_tensor_map *m)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");
}

INLINE void tma_load_2d(const cu_tensor_map *m, u64 *full, void *to, int col, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(m), "r"(col), "r"(row), "r"(shared_address(full))
                 : "memory");
}

/* The box goes to the same address in every CTA of the cluster whose bit is set in `ctas`, and to its barrier. */
INLINE void tma_load_2d_multicast(const cu_tensor_map *m, u64 *full, void *to, int col, int row, u32 ctas)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(m), "r"(col), "r"(row), "r"(shared_address(full)), "h"((u16)ctas)
                 : "memory");
}

INLINE void tma_load_3d(const cu_tensor_map *m, u64 *full, void *to, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"(m), "r"(x), "r"(y), "r"(z), "r"(shared_address(full))
                 : "memory");
}

INLINE void tma_load_4d(const cu_tensor_map *m, u64 *full, void *to, int x, int y, int z, int v)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
                 "l"(m), "r"(x), "r"(y), "r"(z), "r"(v), "r"(shared_address(full))
                 : "memory");
}

INLINE void tma_load_5d(const cu_tensor_map *m, u64 *full, void *to, int x, int y, int z, int v, int w)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_address(to)),
                 "l"(m), "r"(x), "r"(y), "r"(z), "r"(v), "r"(w), "r"(shared_address(full))
                 : "memory");
}

/* The box goes to the same address in every CTA of the cluster whose bit is set in `ctas`, and to its barrier. */
INLINE void tma_load_5d_multicast(const cu_tensor_map *m, u64 *full, void *to, int x, int y, int z, int v, int w,
                                  u32 ctas)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared_address(to)),
                 "l"(m), "r"(x), "r"(y), "r"(z), "r"(v), "r"(w), "r"(shared_address(full)), "h"((u16)ctas)
                 : "memory");
}

/* Copies bytes as they lie: a multiple of 16 from and to addresses that are multiples of 16. */
INLINE void bulk_load(u64 *full, void *to, const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(full))
                 : "memory");
}

/* TMA stores run asynchronously. The thread that issued them commits them, and then waits either until their source
 * may be overwritten (wait_read) or until they are complete (wait_all). Only the issuing thread can wait for them. */
INLINE void tma_store_2d(const cu_tensor_map *m, const void *from, int col, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(m),
                 "r"(shared_address(from)), "r"(col), "r"(row)
                 : "memory");
}
INLINE void tma_store_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
INLINE void tma_store_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
INLINE void tma_store_wait_all(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Makes ordinary writes to shared memory visible to wgmma and TMA. */
INLINE void fence_async_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- wgmma ---- */

INLINE void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#define WGMMA_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

/* Keeps the compiler from moving uses of an accumulator across a wait. */
INLINE void wgmma_touch(float &x) { asm volatile("" : "+f"(x)::"memory"); }

enum { SWIZZLE_ATOM = 1024 };
/* The first atom of the CTA's dynamic shared memory. Written so, the compiler knows that what is read there is shared
 * memory: rounding a pointer up as an integer makes loads and stores generic, whose addresses take two registers. */
INLINE char *first_atom(char *raw) { return raw + (-shared_address(raw) & (SWIZZLE_ATOM - 1)); }

INLINE u64 smem_descriptor(u32 address, u32 lbo, u32 sbo)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)(lbo >> 4) << 16 | (u64)(sbo >> 4) << 32 | (u64)1 << 62;
}

/* The same for rows of 64 bytes with the 64-byte swizzle: 8 of them are an atom of 512 bytes. */
INLINE u64 smem_descriptor_64(u32 address, u32 lbo, u32 sbo)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)(lbo >> 4) << 16 | (u64)(sbo >> 4) << 32 | (u64)2 << 62;
}

/* The accumulators of a wgmma, as operand numbers and as operands: WGMMA_R<n> are the numbers of the first n. */
#define WGMMA_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_R16 WGMMA_R8 ", " \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_R32 WGMMA_R16 ", " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_R48 WGMMA_R32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_R64 WGMMA_R48 ", " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_R80 WGMMA_R64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_R96 WGMMA_R80 ", " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_R112 WGMMA_R96 ", " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, " \
    "%110, %111"
#define WGMMA_R128 WGMMA_R112 ", " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
    "%126, %127"
#define WGMMA_8(a, b, c, e, f, g, h, i) \
    "+f"(d[a]), "+f"(d[b]), "+f"(d[c]), "+f"(d[e]), "+f"(d[f]), "+f"(d[g]), "+f"(d[h]), "+f"(d[i])
#define WGMMA_D8 WGMMA_8(0, 1, 2, 3, 4, 5, 6, 7)
#define WGMMA_D16 WGMMA_D8, WGMMA_8(8, 9, 10, 11, 12, 13, 14, 15)
#define WGMMA_D32 WGMMA_D16, WGMMA_8(16, 17, 18, 19, 20, 21, 22, 23), WGMMA_8(24, 25, 26, 27, 28, 29, 30, 31)
#define WGMMA_D48 WGMMA_D32, WGMMA_8(32, 33, 34, 35, 36, 37, 38, 39), WGMMA_8(40, 41, 42, 43, 44, 45, 46, 47)
#define WGMMA_D64 WGMMA_D48, WGMMA_8(48, 49, 50, 51, 52, 53, 54, 55), WGMMA_8(56, 57, 58, 59, 60, 61, 62, 63)
#define WGMMA_D80 WGMMA_D64, WGMMA_8(64, 65, 66, 67, 68, 69, 70, 71), WGMMA_8(72, 73, 74, 75, 76, 77, 78, 79)
#define WGMMA_D96 WGMMA_D80, WGMMA_8(80, 81, 82, 83, 84, 85, 86, 87), WGMMA_8(88, 89, 90, 91, 92, 93, 94, 95)
#define WGMMA_D112 \
    WGMMA_D96, WGMMA_8(96, 97, 98, 99, 100, 101, 102, 103), \
    WGMMA_8(104, 105, 106, 107, 108, 109, 110, 111)
#define WGMMA_D128 \
    WGMMA_D112, WGMMA_8(112, 113, 114, 115, 116, 117, 118, 119), \
    WGMMA_8(120, 121, 122, 123, 124, 125, 126, 127)

/* d[64 x n] = A B, or += with `accumulate`; both operands K-major in shared memory. `count` is n / 2, the accumulators
 * of a thread; the three numbers that follow it are those of the operands behind the accumulators. */
#define WGMMA_SS(n, count, na, nb, np)                                                                                 \
    INLINE void wgmma_m64n##n##k16_ss(float *d /* [n / 2] */, u64 a, u64 b, int accumulate)                            \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #np ", 0;"                                                     \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" WGMMA_R##count "}, %" #na ", %" #nb \
                     ", p, 1, 1, 0, 0; }"                                                                              \
                     : WGMMA_D##count                                                                                  \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
WGMMA_SS(32, 16, 16, 17, 18)
WGMMA_SS(64, 32, 32, 33, 34)
WGMMA_SS(96, 48, 48, 49, 50)
WGMMA_SS(128, 64, 64, 65, 66)
WGMMA_SS(160, 80, 80, 81, 82)
WGMMA_SS(192, 96, 96, 97, 98)
WGMMA_SS(224, 112, 112, 113, 114)
WGMMA_SS(256, 128, 128, 129, 130)

/* The same with A in registers (as mma_bf16 in ptx.cuh has it, 16 rows a warp); seven numbers follow `count`. */
#define WGMMA_RS(n, count, a0, a1, a2, a3, nb, np)                                                                     \
    INLINE void wgmma_m64n##n##k16_rs(float *d /* [n / 2] */, const u32 *a /* [4] */, u64 b, int accumulate)           \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #np ", 0;"                                                     \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" WGMMA_R##count "},"                 \
                     " {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #nb ", p, 1, 1, 0; }"                              \
                     : WGMMA_D##count                                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
    }
WGMMA_RS(32, 16, 16, 17, 18, 19, 20, 21)
WGMMA_RS(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA_RS(96, 48, 48, 49, 50, 51, 52, 53)
WGMMA_RS(128, 64, 64, 65, 66, 67, 68, 69)

/* d[64 x n] = A B, or += with `accumulate`, of E4M3: A in registers, B K-major in shared memory, a step of 32 in K.
 * Lane 4 g + q has of A the bytes 4 q .. 4 q + 3 of rows g and g + 8, then bytes 16 + 4 q .. of both. The tensor cores
 * keep some 14 bits of a sum (DeepSeek-V3's technical report), so a kernel adds up few steps so. */
#define WGMMA_RS_E4M3(n, count, a0, a1, a2, a3, nb, np)                                                                \
    INLINE void wgmma_m64n##n##k32_rs_e4m3(float *d /* [n / 2] */, const u32 *a /* [4] */, u64 b, int accumulate)      \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #np ", 0;"                                                     \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" WGMMA_R##count "},"                 \
                     " {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #nb ", p, 1, 1; }"                                 \
                     : WGMMA_D##count                                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
    }
WGMMA_RS_E4M3(32, 16, 16, 17, 18, 19, 20, 21)
WGMMA_RS_E4M3(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA_RS_E4M3(128, 64, 64, 65, 66, 67, 68, 69)

/* The same with both operands K-major in shared memory. */
#define WGMMA_SS_E4M3(n, count, na, nb, np)                                                                            \
    INLINE void wgmma_m64n##n##k32_ss_e4m3(float *d /* [n / 2] */, u64 a, u64 b, int accumulate)                       \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #np ", 0;"                                                     \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" WGMMA_R##count "}, %" #na ", %" #nb \
                     ", p, 1, 1; }"                                                                                    \
                     : WGMMA_D##count                                                                                  \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
WGMMA_SS_E4M3(128, 64, 64, 65, 66)
WGMMA_SS_E4M3(192, 96, 96, 97, 98)

INLINE void wgmma_m64n64k16_rs_t(float *d /* [32] */, const u32 *a /* [4] */, u64 b, int accumulate)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},"
        " {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

INLINE void wgmma_m64n128k16_rs_t(float *d /* [64] */, const u32 *a /* [4] */, u64 b, int accumulate)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;"
        " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63},"
        " {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

INLINE void wgmma_m64n256k16_rs_t(float *d /* [128] */, const u32 *a /* [4] */, u64 b, int accumulate)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %133, 0;"
        " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},"
        " {%128, %129, %130, %131}, %132, p, 1, 1, 1; }"
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
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

/* ---- stmatrix ---- */

/* Stores four 8 x 8 matrices of bf16 transposed. Lane 8 i + r brings the address of row r of matrix i in shared memory;
 * in register i, lane 4 g + t has elements (2 t, g) and (2 t + 1, g) of what is stored, as accumulators lie in it. */
INLINE void store_matrix4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/* The same, not transposed: in register i, lane 4 g + t has elements (g, 2 t) and (g, 2 t + 1). */
INLINE void store_matrix4(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

/* ---- clusters ---- */

/* A barrier for all threads of all CTAs of the cluster; with one CTA, for the threads of this CTA. */
template <int kCtas> INLINE void cluster_sync(void)
{
    if (kCtas > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;"
                     " barrier.cluster.wait.acquire.aligned;" ::
                         : "memory");
    else
        __syncthreads();
}

/* The address in CTA `rank` of the cluster that `mine` has in this CTA. */
INLINE u32 peer_address(const void *mine, u32 rank)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(mine)), "r"(rank));
    return there;
}

/* Arrives at the barrier of CTA `rank` that has the address of `mine`. With .release.cluster each arrival would be a
 * MEMBAR.ALL.GPU, which took a GEMM 1.6 times as long. */
INLINE void barrier_arrive_at(u64 *mine, u32 rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer_address(mine, rank)) : "memory");
}

/* Loads 16 bytes from the shared memory of CTA `rank` of the cluster, at the address that `mine` has in this CTA. */
INLINE float4 load_peer16(const float *mine, u32 rank)
{
    u32 there = peer_address(mine, rank);
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(there)
                 : "memory");
    return v;
}

/* ---- registers ---- */

#define SETMAXNREG_INC(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 " #n ";")
#define SETMAXNREG_DEC(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 " #n ";")
