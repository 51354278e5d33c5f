// y[t, :] = table[token[t], :], copied by warps       table [vocab, hidden] bf16, y [tokens, hidden] bf16
//
// The variants of embed: ways to copy a row that embed.cu does not take. Each is one value of a template parameter,
// so that one change at a time can be measured. Grid: SPLITS warps copy one row, each a part of PART bytes;
// THREADS / 32 warps per CTA. A lane loads up to kDepth vectors before it stores the first.
//
//   SPLITS      warps per row. More of them put more SMs to work when there are few rows
//   OCCUPANCY   CTAs that an SM shall hold at least. The compiler limits registers to what this allows, and kDepth
//               is smaller where they are few
//   VECTOR      16 or 32 bytes that are neighbours in memory for each lane. Up to sm_90 the widest load of a lane has
//               16 bytes (LDG.128), so 32 bytes are two loads, each of which uses one half of every 32-byte sector.
//               From sm_100 on one load has 32 bytes
//   HINT        L2 policy: 0 none; 1 table evict_first and y evict_last; 2 table evict_last and y evict_first
//   STAGED      cp.async to shared memory, then from there to y
//   SHUFFLE     one lane reads the token and gives it to the others by a shuffle
//
// Bytes: 2 * ROW_BYTES per token, the same for all of them. Bound by memory from about 1000 tokens on, by launch
// latency below.
// Template: ROW_BYTES (a multiple of 16 * SPLITS, or of 32 * SPLITS if VECTOR is 32), SPLITS, THREADS, OCCUPANCY,
// VECTOR, HINT, STAGED, SHUFFLE.
#include "embed_params.h"

constexpr int kVectors = ROW_BYTES / SPLITS / 16, // of one warp
    kWarps = THREADS / 32, kMost = THREADS * OCCUPANCY > 1024 ? 4 : 8, kPer = (kVectors + 31) / 32,
              kDepth = VECTOR == 32 ? kMost : kPer < kMost ? kPer : kMost;

INLINE u64 policy_first()
{
    u64 p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(p));
    return p;
}
INLINE u64 policy_last()
{
    u64 p;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(p));
    return p;
}
INLINE uint4 load16_hint(const void *p, u64 policy)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
    return v;
}
INLINE void store16_hint(void *p, uint4 v, u64 policy)
{
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy)
                 : "memory");
}

#if VECTOR == 32 && __CUDA_ARCH__ >= 1000
#define WIDE 1
INLINE void load32(const void *p, uint4 &a, uint4 &b)
{
    asm volatile("ld.global.nc.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w), "=r"(b.x), "=r"(b.y), "=r"(b.z),
                   "=r"(b.w)
                 : "l"(p));
}
INLINE void store32(void *p, uint4 a, uint4 b)
{
    asm volatile("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(p), "r"(a.x),
                 "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w)
                 : "memory");
}
#else
#define WIDE 0
#endif

// The lane's i-th vector of those from `first` on. With VECTOR 32, vectors 2 i and 2 i + 1 are neighbours.
INLINE int vector_of(int first, int i, int lane)
{
    return VECTOR == 32 ? first + i / 2 * 64 + lane * 2 + i % 2 : first + i * 32 + lane;
}

INLINE void copy_by_registers(const uint4 *from, uint4 *to, int lane)
{
    u64 table = HINT == 1 ? policy_first() : HINT == 2 ? policy_last() : 0,
        y = HINT == 1 ? policy_last() : HINT == 2 ? policy_first() : 0;
#pragma unroll 1
    for (int first = 0; first < kVectors; first += kDepth * 32) {
        uint4 v[kDepth];
#pragma unroll
        for (int i = 0; i < kDepth; i += 1 + WIDE) {
            int at = vector_of(first, i, lane);
            if (at >= kVectors)
                continue;
#if WIDE
            load32(from + at, v[i], v[i + 1]);
#else
            v[i] = HINT ? load16_hint(from + at, table) : load_weights16(from + at);
#endif
        }
#pragma unroll
        for (int i = 0; i < kDepth; i += 1 + WIDE) {
            int at = vector_of(first, i, lane);
            if (at >= kVectors)
                continue;
#if WIDE
            store32(to + at, v[i], v[i + 1]);
#else
            if constexpr (HINT)
                store16_hint(to + at, v[i], y);
            else
                store16(to + at, v[i]);
#endif
        }
    }
}

#if STAGED
// A lane reads back what it has copied itself, so no barrier is needed.
INLINE void copy_by_shared(const uint4 *from, uint4 *to, int lane)
{
    __shared__ uint4 stage[kWarps][kDepth * 32];
    uint4 *mine = stage[threadIdx.x / 32];
#pragma unroll 1
    for (int first = 0; first < kVectors; first += kDepth * 32) {
#pragma unroll
        for (int i = 0; i < kDepth; i++) {
            int at = vector_of(first, i, lane);
            if (at < kVectors)
                copy_async16(shared_address(mine + at - first), from + at, 16);
        }
        copy_async_commit();
        copy_async_wait<0>();
#pragma unroll
        for (int i = 0; i < kDepth; i++) {
            int at = vector_of(first, i, lane);
            if (at < kVectors)
                store16(to + at, mine[at - first]);
        }
    }
}
#endif

INLINE i32 token_of(const embed_params &p, u32 t)
{
    i32 token = p.tokens[t];
    return token < 0 ? p.pool[-1 - token] : token;
}

KERNEL __launch_bounds__(THREADS, OCCUPANCY) embed_rows(const __grid_constant__ embed_params p)
{
    u32 warp = blockIdx.x * kWarps + threadIdx.x / 32, t = warp / SPLITS, part = warp % SPLITS;
    int lane = threadIdx.x % 32;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 token = 0;
    if (!SHUFFLE || lane == 0)
        token = token_of(p, t);
    if constexpr (SHUFFLE)
        token = __shfl_sync(~0u, token, 0);
    const uint4 *from = (const uint4 *)p.table + ((i64)token * SPLITS + part) * kVectors;
    uint4 *to = (uint4 *)p.y + ((i64)t * SPLITS + part) * kVectors;
#if STAGED
    copy_by_shared(from, to, lane);
#else
    copy_by_registers(from, to, lane);
#endif
}
