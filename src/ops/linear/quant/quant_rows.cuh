// Rows of quantised tiles times few columns of x. linear_quant.cu and moe_quant.cu share this code.
//
// A group is two tiles of 8 weight rows (HALF: one; PAIR: a gate tile and the up tile that belongs to it). The WARPS
// warps of a CTA work on a group together. Its units of 128 columns go to the warps in pairs: a pair is 256 columns and
// their super-scales, contiguous in memory, and pair p goes to warp p % WARPS. PairStream copies a warp's pairs, group
// after group, to shared memory, STAGES pairs ahead of their use. pair_products() multiplies one pair, and row_sums()
// ends a group.
//
// In mma m16n8k16 the 16-row operand is weight rows. The 8 columns are 8 tokens if there are more than 4. With fewer
// tokens, SLOTS chunks of 32 weight columns share the 8 columns, with 8 / SLOTS tokens each: x is zero where a column
// does not belong to the chunk at hand. The factor that makes it zero is the one that x is multiplied by anyway
// (quant_tile.cuh). One set of sums then holds SLOTS chunks, so scaling costs a lane 1 / SLOTS of what it would cost
// otherwise. With 4 slots no two lanes make the same scale.
//
//   SLOTS 4, 2 tokens    column     0    1    2    3    4    5    6    7
//                        chunk      0    0    1    1    2    2    3    3        of the unit
//                        token      0    1    0    1    0    1    0    1
//
// Quants are exact integers; the sums of a chunk (Q6_K: of 16 columns) are scaled in fp32. A minimum adds min *
// sum(x over the chunk). The tensor core makes that sum too, from rows of ones (HALF leaves 8 rows free for them). The
// offset of a type is subtracted first, by a product with rows of that number. Q2_K has all of it for 16 columns.
// Order of the sums for a row and a token: a warp adds its chunks in four sums, by chunk % 4, each in rising order;
// then (0 + 1) + (2 + 3); then the warps' sums are added in rising order. TILES, HALF and SLOTS do not change this
// order.
//
// Needs BITS, OFFSET, FORM, K, WARPS, STAGES, SLOTS (4, 2, 1), TILES (of 8 columns; 1 if SLOTS > 1), HALF, PAIR.
#include "quant_tile.cuh"

static_assert(SLOTS == 1 || (TILES == 1 && !kFp8), "slots need one scale per chunk, and one tile of columns");

constexpr int kPairs = (kUnits + 1) / 2, kSteps = (kPairs + WARPS - 1) / WARPS;
constexpr bool kRagged = kPairs % WARPS != 0; // the last step has no pair for some warps
constexpr int kGroupTiles = HALF || PAIR ? 1 : 2, kGroupRows = kGroupTiles * 8;
constexpr int kTokens = 8 / SLOTS;                          // tokens in 8 columns
constexpr int kColumns = SLOTS > 1 ? kTokens : TILES * 8;   // tokens in total
constexpr int kSets = 4 / SLOTS;                            // sets of sums per unit
constexpr int kAcc = kFp8 ? 1 : kSets;               // FP8 has one scale per unit

// ---- the ring ----

constexpr int kPart = 2 * unit_bytes(4) + 32 * kSuper;                   // bytes of a pair in one tile
constexpr int kStage = (HALF ? 1 : 2) * kPart;                           // bytes of a pair in the group's tiles
constexpr int kLastPart = (int)(kTileBytes - (i64)(kPairs - 1) * kPart); // bytes of a tile's last pair
constexpr int kCopies = (kPart + 511) / 512;                             // 16-byte copies per lane and tile

// The CTA works on items blockIdx.x, blockIdx.x + gridDim.x, ... below `items`. aim(item, low, apart) returns the
// addresses of an item's two tiles: the high tile begins `apart` bytes after the low one.
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
    // Waits for the oldest pair and returns it: its part of the low tile, and kPart bytes later that of the high one.
    // When the pair has been used, next() fills its place again.
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

// Lane (g, q) loads x of token g % kTokens for the chunks that equal slot_x mod SLOTS, and holds the sums of the chunks
// that equal slot_c mod SLOTS. even[s] and odd[s] are the factors of x for chunk s: 2^96 and 2^96 >> kOddShift if the
// lane loads x for chunk s, else 0.
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

// x of a chunk for lane q of a quad, in the order of the quants; zeros beyond the row.
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

// fmaf, not c + low * s: a sum that begins with 0 is a product, and of the sum of two products the compiler may fuse
// either one. It chose differently for other SLOTS and TILES, which shows in the last bit.
INLINE void add_scaled(float (&c)[4], const float (&s)[4], float low, float high)
{
    c[0] = fmaf(low, s[0], c[0]);
    c[1] = fmaf(low, s[1], c[1]);
    c[2] = fmaf(high, s[2], c[2]);
    c[3] = fmaf(high, s[3], c[3]);
}

// One set of a unit's sums, for 8 columns: sums of quants times x, the same for the second 16 columns of each chunk
// (Q6_K), and sums of x (for minima), likewise.
struct Sums {
    float quants[4], second[4], x[4], second_x[4];
};

// a, b: the quants of a chunk in the low and in the high rows; x: the chunk's x times its factors.
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
        mma_bf16(kHalves ? s.second_x : s.x, raw_pair(1, 0), raw_pair(1, 0), raw_pair(1, 1), raw_pair(1, 1), x.z, x.w);
    }
    mma_bf16(s.quants, a[0], b[0], a[1], b[1], x.x, x.y);
    mma_bf16(second, a[2], b[2], a[3], b[3], x.z, x.w);
}

INLINE void scale_sums(const Sums &s, const RowScale &low, const RowScale &high, float (&acc)[4])
{
    add_scaled(acc, s.quants, low.scale[0], high.scale[0]);
    if constexpr (kHalves)
        add_scaled(acc, s.second, low.scale[1], high.scale[1]);
    if constexpr (kMins && HALF) { // the high rows were ones, so rows 8 .. 15 hold the sums of x
        acc[0] = fmaf(low.min[0], s.quants[2], acc[0]);
        acc[1] = fmaf(low.min[0], s.quants[3], acc[1]);
        if constexpr (kHalves) {
            acc[0] = fmaf(low.min[1], s.second[2], acc[0]);
            acc[1] = fmaf(low.min[1], s.second[3], acc[1]);
        }
    } else if constexpr (kMins) {
        add_scaled(acc, s.x, low.min[0], high.min[0]);
        if constexpr (kHalves)
            add_scaled(acc, s.second_x, low.min[1], high.min[1]);
    }
}

// Multiplies a unit of CHUNKS chunks by x, scales the products and adds them to acc. The unit lies `at` bytes after the
// beginning of its pair.
template <int CHUNKS>
INLINE void unit_products(const u8 *pair, int at, int unit, const Columns &columns, const u16 *const (&x)[TILES],
                          int lane, float (&acc)[TILES][kAcc][4])
{
    constexpr int kEvery = kFp8 ? CHUNKS : SLOTS; // chunks per set of sums
    const u8 *pair_high = pair + (HALF ? 0 : kPart);
    int g = lane / 4, q = lane % 4;
    Unit low, high;
    load_quants<CHUNKS>(pair + at, lane, low);
    if constexpr (!HALF)
        load_quants<CHUNKS>(pair_high + at, lane, high);
    uint4 early[kSets]; // x, loaded ahead if there is one tile of columns
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
        int c = kFp8 ? 0 : r * SLOTS + columns.slot_c;
        if ((k % kEvery == kEvery - 1 || k == CHUNKS - 1) && (CHUNKS == 4 || c < CHUNKS)) {
            RowScale scale = row_scale<CHUNKS>(pair, pair + at, g, c), scale_high = {};
            if constexpr (!HALF)
                scale_high = row_scale<CHUNKS>(pair_high, pair_high + at, g, c);
#pragma unroll
            for (int n = 0; n < TILES; n++)
                scale_sums(sums[n], scale, scale_high, acc[n][kFp8 ? 0 : r]);
        }
        if (TILES > 1)
            __syncwarp(); // keeps x from being loaded further ahead, for which there are not enough registers
    }
}

// Multiplies pair `pair`, which lies at `at` in shared memory.
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

// Ends a warp's sums of a group: c are the sums in the layout of an mma result, in its first kColumns columns.
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
