// This file is pasted in front of every kernel. It defines short names for types, and one-line wrappers
// of PTX instructions that are named after what they do. Functions without a qualifier are device
// functions (-default-device). No kernel includes a header of CUDA.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
// The same types under the names of <stdint.h>: the parameter headers, which host code includes too, use them.
#define VT_KERNEL
typedef u8 uint8_t;
typedef u16 uint16_t;
typedef u32 uint32_t;
typedef u64 uint64_t;
typedef i32 int32_t;
typedef i64 int64_t;

#define KERNEL extern "C" __global__ void
#define INLINE __forceinline__ static

constexpr float kLog2e = 1.4426950408889634f;
#define kInfinity __int_as_float(0x7f800000) // no constexpr form without headers

// ---- bf16 as bits ----
INLINE float bf16_f32(u16 v) { return __uint_as_float((u32)v << 16); }
INLINE float bf16_low(u32 v) { return __uint_as_float(v << 16); }
INLINE float bf16_high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
INLINE u32 pack_bf16(float low, float high)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
// a * b + c on pairs, rounded once. Subnormals are not flushed to zero.
INLINE u32 fma_bf16x2(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
INLINE float f16_f32(u16 v)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}
INLINE u16 f32_bf16(float v) { return (u16)pack_bf16(v, 0.f); }

struct f32x8 {
    float v[8];
};
INLINE f32x8 unpack8(uint4 a)
{
    return {{bf16_low(a.x), bf16_high(a.x), bf16_low(a.y), bf16_high(a.y), bf16_low(a.z),
             bf16_high(a.z), bf16_low(a.w), bf16_high(a.w)}};
}
INLINE uint4 pack8(const f32x8 &a)
{
    return make_uint4(pack_bf16(a.v[0], a.v[1]), pack_bf16(a.v[2], a.v[3]),
                      pack_bf16(a.v[4], a.v[5]), pack_bf16(a.v[6], a.v[7]));
}

// ---- global memory ----
INLINE uint4 load16(const void *p) { return *(const uint4 *)p; }
INLINE void store16(void *p, uint4 v) { *(uint4 *)p = v; }
// Weights are read once, so they are not kept in L1. Calling this before pdl_wait() is safe, because no kernel writes
// weights.
INLINE uint4 load_weights16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// Past L1, which may hold an older value. For what a kernel reads before pdl_wait(): the kernel in front called
// pdl_go() behind its own wait, and a kernel before that one wrote this.
INLINE i32 load_from_l2(const i32 *p)
{
    u32 v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return (i32)v;
}
INLINE uint4 load16_from_l2(const void *p)
{
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

// Brings the line of p into L2. The value is not read, so a kernel may call this before pdl_wait().
INLINE void prefetch_l2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Harmless races. These marks announce them to the race detector of the emulated GPU. A mark holds until the next one
// of its kind. On a GPU the marks compile to nothing.
//   LOADS_ARE_DISCARDED      The loads are issued before the kernel knows whether it needs them. Another thread may
//                            write the same place meanwhile; then the loaded value is thrown away.
//   STORES_ARE_EQUAL         Several threads store the same value to the same place, and each of them reads back what
//                            it has stored itself.
//   STORES_TO_PADDING_PAGE   Padding tokens all store their K and V to page 0, the padding page. No result reads it.
#ifdef __EMULATED_GPU__
#define LOADS_ARE_DISCARDED(condition) emu_loads_are_discarded(condition)
#define STORES_ARE_EQUAL(condition) emu_stores_are_equal(condition)
#else
#define LOADS_ARE_DISCARDED(condition) ((void)0)
#define STORES_ARE_EQUAL(condition) ((void)0)
#endif
#define STORES_TO_PADDING_PAGE(condition) STORES_ARE_EQUAL(condition)

// ---- programmatic dependent launch ----
// A kernel calls pdl_wait() before it reads what another kernel wrote, and before it writes what another kernel may
// still read. pdl_go() allows the next kernel of the stream to start. A stamped kernel (device/cuda/stamp.cuh) notes
// when it has waited.
#ifdef STAMPED
INLINE void stamp_waited();
#else
INLINE void stamp_waited() {}
#endif
INLINE void pdl_wait()
{
#if PDL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    stamp_waited();
}
INLINE void pdl_go()
{
#if PDL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- shared memory and cp.async ----
INLINE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
// Copies 16 bytes from global to shared memory. With `bytes` 0 it writes zeros and reads nothing.
INLINE void copy_async16(u32 to, const void *from, u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
INLINE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending> INLINE void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- tensor cores, sm_80 ----
struct frag4 {
    u32 r[4];
};
INLINE frag4 load_matrix4(u32 address)
{
    frag4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(address)
                 : "memory");
    return f;
}
INLINE frag4 load_matrix4_transposed(u32 address)
{
    frag4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(address)
                 : "memory");
    return f;
}
// c[16 x 8] += a[16 x 16] b[16 x 8]. Lane 4 g + t holds, as (row, column) of the first element of each register:
//   a   (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
//   b   (2t, g), (2t + 8, g)
//   c   (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
INLINE void mma_bf16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- arithmetic ----
INLINE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(~0u, v, d);
    return v;
}
// Exact division has a slow path for denominators above 2^126: a function call that costs the whole warp about 400
// cycles. __fdividef returns 0 there, which is the right result.
INLINE float silu(float x) { return __fdividef(x, 1.f + __expf(-x)); }
INLINE float gelu_tanh(float x)
{
    float t = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.f + __expf(-2.f * t)); // 0.5 x (1 + tanh t)
}

// ---- "the last CTA does the rest" ----
// Returns true in the last of `parts` CTAs that call it with this ticket. That CTA sees all global writes which the
// threads of the other CTAs made before their calls. The ticket must be zero before the first call, and is zero again
// after the last one. All threads of a CTA must call it.
INLINE bool last_of(u32 *ticket, u32 parts)
{
    __shared__ u32 drawn;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        drawn = atomicAdd(ticket, 1u);
        if (drawn + 1 == parts)
            *ticket = 0;
    }
    __syncthreads();
    bool last = drawn + 1 == parts;
    if (last)
        __threadfence();
    return last;
}
// The same, faster where CTAs wait for nothing else. Thread 0 alone orders the stores of all threads, which the
// barrier has shown to it, and later loads of all threads, by one atomic. Loads of what the others wrote must go to L2
// (__ldcg).
INLINE bool last_of_acq_rel(u32 *ticket, u32 parts)
{
    __shared__ u32 drawn;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 before;
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(ticket), "r"(1)
                     : "memory");
        drawn = before;
        if (before + 1 == parts)
            *ticket = 0;
    }
    __syncthreads();
    return drawn + 1 == parts;
}
