// Index (the embedding lookup), step 3 of 5: 16 bytes a load.
//
// What changes against step 2: a lane copies 8 elements at once, so a request of a warp brings
// 512 bytes.
// Counter that it changes: instructions that load from global memory, to an eighth
//     ncu --metrics smsp__sass_inst_executed_op_global_ld.sum
// Expect a factor of two or more. What is left: a lane loads 16 bytes, waits for them, stores
// them, and only then asks for the next ones: the compiler may not move a load over the store in
// front of it, because it cannot know that table and y do not overlap.
// Rows whose length is no multiple of 8 keep 2-byte loads.
// Next: index_step4_ahead.cu
#include "lab_kernel.cuh"
#include "embed_params.h"

constexpr i32 kWarps = 8, kVec = HIDDEN % 8 == 0 ? 8 : 1;

template <int N> struct Raw { typedef uint4 type; };
template <> struct Raw<1> { typedef u16 type; };
typedef Raw<kVec>::type raw_t;

INLINE uint4 scaled(uint4 raw, float scale)
{
    f32x8 f = unpack8(raw);
#pragma unroll
    for (int k = 0; k < 8; k++)
        f.v[k] *= scale;
    return SCALED ? pack8(f) : raw;
}
INLINE u16 scaled(u16 raw, float scale) { return SCALED ? f32_bf16(bf16_f32(raw) * scale) : raw; }

LAB_KERNEL(embed_params, kWarps * 32)
{
    i32 t = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= p.n_tokens)
        return;
    i32 token = p.tokens[t];
    if (token < 0)
        token = p.pool[-1 - token];
    const raw_t *from = (const raw_t *)((const u16 *)p.table + (i64)token * HIDDEN);
    raw_t *to = (raw_t *)(p.y + (i64)t * HIDDEN);
    for (i32 i = lane; i < HIDDEN / kVec; i += 32)
        to[i] = scaled(from[i], p.scale);
}

LAB_LAUNCH(embed_params)
{
    launch.grid = (p.n_tokens + kWarps - 1) / kWarps;
}
