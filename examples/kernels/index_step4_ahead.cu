// Index (the embedding lookup), step 4 of 5: loads ahead of stores.
//
// What changes against step 3: a lane issues up to 8 loads before the first store, so a warp has
// 4 KB on its way instead of 512 bytes.
// Counter that it changes: cycles that a warp waits for memory between two instructions
//     ncu --metrics smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio
// (the wait of one load stays as it is; eight share it). Expect it to come near the roof: an
// H200's SM needs some 30 KB on their way, and 16 warps with 4 KB each have twice that.
// Next: index_step5_stream.cu
#include "lab_kernel.cuh"
#include "embed_params.h"

constexpr i32 kWarps = 8, kVec = HIDDEN % 8 == 0 ? 8 : 1;

constexpr i32 kVectors = HIDDEN / kVec, kAhead = 8;

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
    for (i32 first = 0; first < kVectors; first += kAhead * 32) {
        raw_t raw[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; k++)
            if (first + k * 32 + lane < kVectors)
                raw[k] = from[first + k * 32 + lane];
#pragma unroll
        for (int k = 0; k < kAhead; k++)
            if (first + k * 32 + lane < kVectors)
                to[first + k * 32 + lane] = scaled(raw[k], p.scale);
    }
}

LAB_LAUNCH(embed_params)
{
    launch.grid = (p.n_tokens + kWarps - 1) / kWarps;
}
