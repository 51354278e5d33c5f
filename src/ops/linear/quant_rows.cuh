// Rows of quantised tiles times few columns of x: what linear_quant.cu and moe_quant.cu share.
//
// A group is two tiles of 8 weight rows (HALF: one; PAIR: a gate tile and the up tile that belongs to it), WARPS warps
// of a CTA work on it together. Its units of 128 columns go in pairs: pair p, 256 columns and their super-scales in one
// piece, to warp p % WARPS. PairStream copies a warp's pairs, group after group, STAGES ahead of use into shared
// memory; pair_products() multiplies one; row_sums() ends a group.
//
// mma m16n8k16: weight rows on the side of 16, and on the side of 8 the columns. With more than 4 tokens these are
// 8 tokens. With fewer, SLOTS chunks of 32 weight columns share the sums' columns, 8 / SLOTS tokens each: where column
// and chunk do not meet x is zero, and the factor that makes it so is the one that x needs anyway (quant_tile.cuh). One
// set of sums then holds SLOTS chunks, and scaling costs a lane 1 / SLOTS of what it costs otherwise; of 4 chunks, all
// lanes' scales are different ones.
//
//   SLOTS 4, 2 tokens    column     0    1    2    3    4    5    6    7
//                        chunk      0    0    1    1    2    2    3    3        of the unit
//                        token      0    1    0    1    0    1    0    1
//
// Quants are exact integers, sums of a chunk (Q6_K: of 16 columns) are scaled in fp32. A minimum's share is min *
// sum(x over the chunk): the sum comes from the tensor core too, by rows of ones (HALF has 8 rows to spare for them).
// A type's offset goes in first, as a row of that number. Order of the sums of a row and a token: the chunks of a warp
// by chunk % 4, each in rising order; then (0 + 1) + (2 + 3); then the warps in rising order. TILES and
// HALF do not change it. SLOTS does not either, but an H200 rounds the last bit otherwise: deterministic steps use one.
//
// Needs TYPE, K, WARPS, STAGES, SLOTS (4, 2, 1), TILES (of 8 columns; 1 where SLOTS > 1), HALF, PAIR.
#include "quant_tile.cuh"

static_assert(SLOTS == 1 || (TILES == 1 && TYPE != FP8), "a scale a chunk, one tile of columns");

constexpr int kPairs = (kUnits + 1) / 2, kSteps = (kPairs + WARPS - 1) / WARPS;
constexpr bool kRagged = kPairs % WARPS != 0; // the last step has no pair for some warps
constexpr int kGroupTiles = HALF || PAIR ? 1 : 2, kGroupRows = kGroupTiles * 8;
constexpr int kTokens = 8 / SLOTS;                          // in 8 columns
constexpr int kColumns = SLOTS > 1 ? kTokens : TILES * 8;   // tokens in all
constexpr int kSets = 4 / SLOTS;                            // of sums, a unit
constexpr int kAcc = TYPE == FP8 ? 1 : kSets;               // FP8 has one scale a unit

// ---- the ring ----

constexpr int kPart = 2 * unit_bytes(4) + 32 * kSuper;                   // a pair of one tile
constexpr int kStage = (HALF ? 1 : 2) * kPart;                           // of the group
constexpr int kLastPart = (int)(kTileBytes - (i64)(kPairs - 1) * kPart); // the row's last pair
constexpr int kCopies = (kPart + 511) / 512;                             // of 16 bytes a lane, a tile

// Aim: aim(item, low, apart) names the two tiles of an item, the high one `apart` bytes behind the low one; items
// blockIdx.x, + gridDim.x, ... below `items`.
template <class Aim> struct PairStream {
    const Aim &aim;
    int items, lane, warp, item, step, slot;
    const u8 *low, *ring;
    u32 apart;

    __forceinline__ void point()
    {
        if (item >= items)
            return;
        aim(item, low, apart);
        low += warp * kPart + lane * 16;
    }
    __forceinline__ void copy(int to_slot)
    {
        int pair = step * WARPS + warp;
        if (item < items && (!kRagged || pair < kPairs)) {
            bool last = kLastPart < kPart && pair == kPairs - 1;
            u32 to = shared_address(ring) + to_slot * kStage + lane * 16;
#pragma unroll
            for (int i = 0; i < kCopies; i++)
                if (((i + 1) * 512 <= kPart || i * 512 + lane * 16 < kPart) &&
                    (!last || i * 512 + lane * 16 < kLastPart)) {
                    copy_async16(to + i * 512, low + i * 512, 16);
                    if (!HALF)
                        copy_async16(to + kPart + i * 512, low + apart + i * 512, 16);
                }
            low += WARPS * kPart;
        }
        copy_async_commit();
        if (++step == kSteps) {
            step = 0;
            item += gridDim.x;
            point();
        }
    }
    __forceinline__ void begin()
    {
        point();
#pragma unroll 1
        for (int i = 0; i < STAGES; i++)
            copy(i);
    }
    // The oldest pair, low tile first and the high one kPart behind it; then next() for its place.
    __forceinline__ const u8 *wait() const
    {
        copy_async_wait<STAGES - 1>();
        __syncwarp();
        return ring + slot * kStage;
    }
    __forceinline__ void next()
    {
        __syncwarp();
        copy(slot);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
};

template <class Aim> INLINE PairStream<Aim> pair_stream(const Aim &aim, int items, u8 *shared)
{
    int warp = threadIdx.x / 32;
    return {aim, items, (int)threadIdx.x % 32, warp, (int)blockIdx.x, 0, 0, nullptr,
            shared + warp * (STAGES * kStage), 0};
}

// ---- columns ----

// Lane (g, q) loads x of token g % kTokens in chunks that are slot_x mod SLOTS, and holds sums of chunks that are
// slot_c mod SLOTS. even, odd: x's factors for chunk s, 2^96 and 2^96 >> kOddShift, where they meet, else 0.
struct Columns {
    int slot_x, slot_c;
    u32 even[SLOTS], odd[SLOTS];
};

INLINE Columns columns_of(int lane)
{
    Columns c = {lane / 4 / kTokens, lane % 4 * 2 / kTokens};
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        c.even[s] = c.slot_x == s ? 0x6f806f80u : 0;
        c.odd[s] = c.slot_x == s ? 0x6f806f80u - kOddShift * 0x00800080u : 0;
    }
    return c;
}

// x of chunk `chunk` for lane quad q, in the order of the quants; zeros beyond the row.
INLINE uint4 load_x(const u16 *x, int chunk, int q)
{
    int k = chunk * 32 + (kHalves ? 4 : 8) * q;
    if (K % 128 != 0 && k >= K)
        return make_uint4(0, 0, 0, 0);
    if constexpr (kHalves) {
        uint2 low = *(const uint2 *)(x + k), high = *(const uint2 *)(x + k + 16);
        return make_uint4(low.x, low.y, high.x, high.y);
    } else {
        return load16(x + k);
    }
}

// ---- products ----

struct RowScale {
    float scale[2], min;
};

// Row g of a unit in shared memory: the scales of chunk c, which may be another one in every lane.
template <int CHUNKS> INLINE RowScale row_scale(const u8 *pair, const u8 *unit, int g, int c)
{
    const u8 *row = unit + scales_at(CHUNKS) + g * scale_bytes(CHUNKS), *super = pair + 2 * unit_bytes(4) + g * 4;
    RowScale r = {};
    if constexpr (TYPE == FP8) {
        r.scale[0] = *(const float *)row;
    } else if constexpr (TYPE == Q6_K) {
        u32 s = *(const u16 *)(row + 2 * c);
        float d = *(const float *)super;
        r.scale[0] = d * byte_f32(s, 0, 128.f);
        r.scale[1] = d * byte_f32(s, 1, 128.f);
    } else if constexpr (kSuper) {
        uint2 s = *(const uint2 *)row;
        u32 d = *(const u32 *)super;
        r.scale[0] = f16_f32((u16)d) * byte_f32(s.x, c, 0.f);
        r.min = -(f16_f32((u16)(d >> 16)) * byte_f32(s.y, c, 0.f));
    } else if constexpr (kMins) {
        u32 s = *(const u32 *)(row + 4 * c);
        r.scale[0] = f16_f32((u16)s);
        r.min = f16_f32((u16)(s >> 16));
    } else {
        r.scale[0] = f16_f32(*(const u16 *)(row + 2 * c));
    }
    return r;
}

INLINE void add_scaled(float (&c)[4], const float (&s)[4], float low, float high)
{
    c[0] += low * s[0];
    c[1] += low * s[1];
    c[2] += high * s[2];
    c[3] += high * s[3];
}

// One set of sums of a unit, for 8 columns: of quants, of those of second 16 columns (Q6_K), of x (minima).
struct Sums {
    float quants[4], second[4], x[4];
};

// a, b: quants of a chunk, of the low and of the high rows; x: the chunk's, with factors.
INLINE void chunk_products(const u32 (&a)[4], const u32 (&b)[4], const uint4 &x, Sums &s)
{
    auto &second = kHalves ? s.second : s.quants;
    if constexpr (kRawOffset > 0) {
        constexpr u32 even = raw_pair(kRawOffset, 0) | 0x80008000u, odd = raw_pair(kRawOffset, 1) | 0x80008000u;
        mma_bf16(s.quants, even, even, odd, odd, x.x, x.y);
        mma_bf16(second, even, even, odd, odd, x.z, x.w);
    }
    if constexpr (kMins && !HALF) {
        mma_bf16(s.x, raw_pair(1, 0), raw_pair(1, 0), raw_pair(1, 1), raw_pair(1, 1), x.x, x.y);
        mma_bf16(s.x, raw_pair(1, 0), raw_pair(1, 0), raw_pair(1, 1), raw_pair(1, 1), x.z, x.w);
    }
    mma_bf16(s.quants, a[0], b[0], a[1], b[1], x.x, x.y);
    mma_bf16(second, a[2], b[2], a[3], b[3], x.z, x.w);
}

INLINE void scale_sums(const Sums &s, const RowScale &low, const RowScale &high, float (&acc)[4])
{
    add_scaled(acc, s.quants, low.scale[0], high.scale[0]);
    if constexpr (kHalves)
        add_scaled(acc, s.second, low.scale[1], high.scale[1]);
    if constexpr (kMins && HALF) { // the high rows were ones: rows 8 .. 15 are sums of x
        acc[0] += low.min * s.quants[2];
        acc[1] += low.min * s.quants[3];
    } else if constexpr (kMins) {
        add_scaled(acc, s.x, low.min, high.min);
    }
}

// Unit `unit` of a row, of CHUNKS chunks, `at` bytes behind its pair's begin: times x, scaled, added to acc.
template <int CHUNKS>
INLINE void unit_products(const u8 *pair, int at, int unit, const Columns &columns, const u16 *const (&x)[TILES],
                          int lane, float (&acc)[TILES][kAcc][4])
{
    constexpr int kEvery = TYPE == FP8 ? CHUNKS : SLOTS; // chunks in a set of sums
    const u8 *pair_high = pair + (HALF ? 0 : kPart);
    int g = lane / 4, q = lane % 4;
    Unit low, high;
    load_quants<CHUNKS>(pair + at, lane, low);
    if constexpr (!HALF)
        load_quants<CHUNKS>(pair_high + at, lane, high);
    uint4 early[kSets]; // x of one tile of columns
    if constexpr (TILES == 1)
#pragma unroll
        for (int r = 0; r < kSets; r++)
            early[r] = load_x(x[0], unit * 4 + r * SLOTS + columns.slot_x, q);
    Sums sums[TILES];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int r = k / SLOTS, s = k % SLOTS;
        u32 a[4], b[4] = {raw_pair(1, 0), raw_pair(1, 1), raw_pair(1, 0), raw_pair(1, 1)};
        raw_quants_of(low, k, a);
        if constexpr (!HALF)
            raw_quants_of(high, k, b);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            if (k % kEvery == 0)
                sums[n] = {};
            uint4 f = TILES == 1 ? early[r] : load_x(x[n], unit * 4 + k, q);
            f.x = fma_bf16x2(f.x, columns.even[s], 0x80008000u);
            f.y = fma_bf16x2(f.y, columns.odd[s], 0x80008000u);
            f.z = fma_bf16x2(f.z, columns.even[s], 0x80008000u);
            f.w = fma_bf16x2(f.w, columns.odd[s], 0x80008000u);
            chunk_products(a, b, f, sums[n]);
        }
        int c = TYPE == FP8 ? 0 : r * SLOTS + columns.slot_c;
        if ((k % kEvery == kEvery - 1 || k == CHUNKS - 1) && (CHUNKS == 4 || c < CHUNKS)) {
            RowScale scale = row_scale<CHUNKS>(pair, pair + at, g, c), scale_high = {};
            if constexpr (!HALF)
                scale_high = row_scale<CHUNKS>(pair_high, pair_high + at, g, c);
#pragma unroll
            for (int n = 0; n < TILES; n++)
                scale_sums(sums[n], scale, scale_high, acc[n][TYPE == FP8 ? 0 : r]);
        }
        if (TILES > 1)
            __syncwarp(); // x further ahead would not fit the registers
    }
}

// Pair `pair` of a row, its tiles at `at`.
INLINE void pair_products(const u8 *at, int pair, const Columns &columns, const u16 *const (&x)[TILES], int lane,
                          float (&acc)[TILES][kAcc][4])
{
    if (kRagged && pair >= kPairs)
        return;
#pragma unroll (TILES > 1 ? 1 : 2)
    for (int i = 0; i < 2; i++) {
        int unit = 2 * pair + i;
        if (kTail && unit == kUnits - 1)
            unit_products<kTail ? kTail : 4>(at, i * unit_bytes(4), unit, columns, x, lane, acc);
        else if (kUnits % 2 == 0 || unit < kUnits)
            unit_products<4>(at, i * unit_bytes(4), unit, columns, x, lane, acc);
    }
}

// A warp's sums: c as an mma has them, the first kColumns columns.
INLINE void row_sums(const float (&acc)[TILES][kAcc][4], float (&c)[TILES][4])
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float v = acc[n][0][i];
            if constexpr (SLOTS == 4) {
                v += __shfl_xor_sync(~0u, v, 1);
                v += __shfl_xor_sync(~0u, v, 2);
            } else if constexpr (SLOTS == 2) {
                float w = acc[n][1][i];
                v += __shfl_xor_sync(~0u, v, 2);
                w += __shfl_xor_sync(~0u, w, 2);
                v += w;
            } else if constexpr (kAcc == 4) {
                v = (v + acc[n][1][i]) + (acc[n][2][i] + acc[n][3][i]);
            }
            c[n][i] = v * kRawUnit;
        }
}
