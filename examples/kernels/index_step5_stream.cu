// Index (the embedding lookup), step 5 of 5: streaming.
//
// What changes against step 4: rows of the table do not stay in L1 (each is read once), and
// stores are marked as streaming (.cs): the lines that they fill are the first ones to leave L2.
// A token that appears twice then finds its row in L2 more often. CTAs have 4 warps, so that the
// last wave of CTAs ends with less of the GPU idle.
// Counter that it changes: L2's hit rate of loads
//     ncu --metrics lts__t_sector_op_read_hit_rate.pct
// Expect a few percent with random tokens, and more where tokens repeat. Together about 85 % of
// the memory roof on an H200: reads and writes share the memory's bus, and a copy does not come
// much closer to the roof of pure reads.
#include "lab_kernel.cuh"
#include "embed_params.h"

constexpr i32 kWarps = 4, kVec = HIDDEN % 8 == 0 ? 8 : 1;

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

INLINE void load_once(const uint4 *from, uint4 &raw) { raw = load_weights16(from); }
INLINE void load_once(const u16 *from, u16 &raw) { raw = *from; }
INLINE void store_stream(uint4 *to, uint4 v) { __stcs(to, v); }
INLINE void store_stream(u16 *to, u16 v) { *to = v; }

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
                load_once(from + first + k * 32 + lane, raw[k]);
#pragma unroll
        for (int k = 0; k < kAhead; k++)
            if (first + k * 32 + lane < kVectors)
                store_stream(to + first + k * 32 + lane, scaled(raw[k], p.scale));
    }
}

LAB_LAUNCH(embed_params)
{
    launch.grid = (p.n_tokens + kWarps - 1) / kWarps;
}
