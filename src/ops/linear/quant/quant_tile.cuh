// Reading quantised tiles: what a lane loads of a unit, and how it unpacks that. linear_quant.h describes
// the layout. Needs the macros BITS, OFFSET and FORM, the type's row of base/dtypes.h (BITS 0: FP8), and K (columns).
//
//   Unit u; load_unit(tile, index, lane, u)     loads 16 to 40 bytes of row lane / 4 of the tile
//   quants_of(u, chunk, a)                      this lane's 8 exact integers (FP8: values) of 32 columns, as bf16 pairs
//   raw_quants_of(u, chunk, a)                  the same in fewer instructions, for products with scaled x (below)
//   scale_of(u, chunk, half), min_of(...)       x = scale * quant + min
//   values_of(u, chunk, v)                      the 8 values, fp32
//
// The 8 elements of lane q of a quad are columns 8 q .. 8 q + 7 of the 32. In types whose scales cover 16 columns, they
// are 4 q .. 4 q + 3 and 16 + 4 q .. 16 + 4 q + 3, so that an m16n8k16 stays within one scale.
//
// quants_of() makes bf16 by bit operations. A nibble n: 0x4300 | n is the bf16 128 + n, and one fma.rn.bf16x2 subtracts
// 128 and the type's offset; every step is exact. A byte of Q8_0: 128 + its low 7 bits, less 128, or less 256 if the
// sign bit is set. E4M3 is a bf16 with a different exponent bias: its bits are moved to their places and multiplied by
// 2^120, which is right for subnormals too.
//
// raw_quants_of() needs no arithmetic. If the bits of a bf16, read as an integer, are below 0x0100, then that integer
// is the value times 2^133: this holds for subnormals and for the lowest binade, which has the same steps. So a byte
// cut out of a word is an exact bf16, only tiny. To make up for it, x is multiplied by 2^96 (exact while |x| < 2^32)
// and the sums by 2^37. Types of 4 bits leave pairs 1 and 3 in bits 4 .. 7, which is 16 times their value; x of those
// columns is multiplied by 2^92.

static_assert((BITS == 0 || BITS == 2 || (BITS >= 4 && BITS <= 6) || BITS == 8) && K % 8 == 0, "types that have tiles");

constexpr bool kFp8 = BITS == 0;
constexpr bool kBytes = kFp8 || BITS == 8;
constexpr bool kMins = (FORM & 1) != 0;   // VT_FORM_MIN
constexpr bool kHalves = (FORM & 2) != 0; // VT_FORM_HALVES: a scale covers 16 columns
constexpr bool kSuper = (FORM & 4) != 0;  // VT_FORM_SUPER: scales are integers, times a super-scale for 256 columns
constexpr bool kPower = (FORM & 8) != 0;  // VT_FORM_POWER: scales are bf16
constexpr int kLowBits = kBytes || BITS == 2 ? 0 : 4; // of the nibbles; Q2_K has high bits alone
constexpr int kHighBits = kBytes ? 0 : BITS - kLowBits;
constexpr int kOffset = kBytes ? 0 : OFFSET; // bytes are stored less their offset

constexpr int kChunks = (K + 31) / 32, kUnits = (kChunks + 3) / 4, kTail = kChunks % 4;
constexpr int words_of(int chunks) { return chunks == 3 ? 4 : chunks; } // 1, 2 or 4
constexpr int low_bytes(int chunks) { return kBytes ? chunks * 256 : words_of(chunks) * 32 * kLowBits; }
constexpr int scales_at(int chunks) { return low_bytes(chunks) + kHighBits * 128; }
constexpr int scale_bytes(int chunks) // per row
{
    return kFp8 ? 4 : kSuper ? 8 : words_of(chunks) * (kMins ? 4 : 2);
}
constexpr int unit_bytes(int chunks) { return scales_at(chunks) + 8 * scale_bytes(chunks); }
constexpr int kPairBytes = 2 * unit_bytes(4) + 32; // two units of a K type and their super-scales
constexpr i64 kTileBytes = kSuper ? (i64)(kUnits / 2) * kPairBytes
                                  : (i64)(kChunks / 4) * unit_bytes(4) + (kTail ? unit_bytes(kTail) : 0);

struct Unit {
    u32 low[kBytes ? 8 : 4], high[2], scale[4], super;
};

// Loads N = 2, 4, 8 or 16 bytes.
template <int N> INLINE void load_shared(const u8 *p, u32 *to)
{
    if constexpr (N == 16) {
        uint4 v = *(const uint4 *)p;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else if constexpr (N == 8) {
        uint2 v = *(const uint2 *)p;
        to[0] = v.x, to[1] = v.y;
    } else if constexpr (N == 4) {
        to[0] = *(const u32 *)p;
    } else {
        to[0] = *(const u16 *)p;
    }
}

// The same from global memory that no kernel writes.
template <int N> INLINE void load_words(const u8 *p, u32 *to)
{
    if constexpr (N == 16) {
        uint4 v = load_weights16(p);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else if constexpr (N == 8) {
        uint2 v = *(const uint2 *)p;
        to[0] = v.x, to[1] = v.y;
    } else if constexpr (N == 4) {
        to[0] = *(const u32 *)p;
    } else {
        to[0] = *(const u16 *)p;
    }
}

template <int CHUNKS> INLINE void load_part(const u8 *p, int lane, Unit &u)
{
    if constexpr (kLowBits > 0) {
        load_words<words_of(CHUNKS) * 4>(p + lane * words_of(CHUNKS) * 4, u.low);
    } else if constexpr (kBytes) {
        load_words<CHUNKS == 1 ? 8 : 16>(p + lane * (CHUNKS == 1 ? 8 : 16), u.low);
        if constexpr (CHUNKS > 2)
            load_words<CHUNKS == 3 ? 8 : 16>(p + 512 + lane * (CHUNKS == 3 ? 8 : 16), u.low + 4);
    }
    if constexpr (kHighBits > 0)
        load_words<kHighBits * 4>(p + low_bytes(CHUNKS) + lane * kHighBits * 4, u.high);
    load_words<scale_bytes(CHUNKS)>(p + scales_at(CHUNKS) + lane / 4 * scale_bytes(CHUNKS), u.scale);
}

// Loads the quants of a unit that was copied to shared memory. row_scale() reads the scales.
template <int CHUNKS> INLINE void load_quants(const u8 *p, int lane, Unit &u)
{
    if constexpr (kLowBits > 0) {
        load_shared<words_of(CHUNKS) * 4>(p + lane * words_of(CHUNKS) * 4, u.low);
    } else if constexpr (kBytes) {
        load_shared<CHUNKS == 1 ? 8 : 16>(p + lane * (CHUNKS == 1 ? 8 : 16), u.low);
        if constexpr (CHUNKS > 2)
            load_shared<CHUNKS == 3 ? 8 : 16>(p + 512 + lane * (CHUNKS == 3 ? 8 : 16), u.low + 4);
    }
    if constexpr (kHighBits > 0)
        load_shared<kHighBits * 4>(p + low_bytes(CHUNKS) + lane * kHighBits * 4, u.high);
}

INLINE void load_unit(const u8 *tile, int index, int lane, Unit &u)
{
    if constexpr (kSuper) {
        const u8 *pair = tile + (i64)(index / 2) * kPairBytes;
        load_part<4>(pair + index % 2 * unit_bytes(4), lane, u);
        load_words<4>(pair + 2 * unit_bytes(4) + lane / 4 * 4, &u.super);
    } else if (kTail && index == kUnits - 1) {
        load_part<kTail ? kTail : 4>(tile + (i64)index * unit_bytes(4), lane, u);
    } else {
        load_part<4>(tile + (i64)index * unit_bytes(4), lane, u);
    }
}

// The bits of `w`, moved right by `by` (left if it is negative) and masked.
INLINE u32 field(u32 w, int by, u32 mask) { return (by >= 0 ? w >> by : w << -by) & mask; }

// The integers of pair p in chunk c, as stored, of a type of 2 to 6 bits.
INLINE u32 integers_of(const Unit &u, int c, int p)
{
    u32 v = 0;
    if constexpr (kLowBits > 0)
        v = field(u.low[c], 4 * p, 0x000f000fu);
    if constexpr (kHighBits == 1)
        v |= field(u.high[0], 4 * c + p - 4, 0x00100010u);
    if constexpr (kHighBits == 2)
        v |= field(u.high[c / 2], 2 * (c % 2 * 4 + p) - kLowBits, 0x00030003u << kLowBits);
    return v;
}

// a[p]: elements 2 p (low half) and 2 p + 1 of chunk c.
INLINE void quants_of(const Unit &u, int c, u32 (&a)[4])
{
    constexpr u32 kOne = 0x3f803f80u, kMagic = 0x43004300u; // 1, 128
#pragma unroll
    for (int p = 0; p < 4; p++) {
        if constexpr (kFp8) {
            u32 w = u.low[2 * c + p / 2];
            u32 bits = field(w, p % 2 ? 0 : -8, 0x80008000u) | field(w, p % 2 ? 4 : -4, 0x07f007f0u);
            a[p] = fma_bf16x2(bits, 0x7b807b80u, 0x80008000u); // times 2^120, minus zero added
        } else if constexpr (kBytes) {
            u32 w = u.low[2 * c + p / 2] >> (p % 2 * 8);
            a[p] = fma_bf16x2((w & 0x007f007fu) | kMagic, kOne, (w & 0x00800080u) | kMagic | 0x80008000u);
        } else {
            a[p] = fma_bf16x2(integers_of(u, c, p) | kMagic, kOne, (kMagic | 0x80008000u) + kOffset * 0x00010001u);
        }
    }
}

// a[p] of a type of 2 to 6 bits: as quants_of(), but the integers are too large by kMagicOffset.
constexpr float kMagicOffset = 128.f + kOffset;
INLINE void magic_quants_of(const Unit &u, int c, u32 (&a)[4])
{
#pragma unroll
    for (int p = 0; p < 4; p++)
        a[p] = integers_of(u, c, p) | 0x43004300u;
}

// raw_quants_of() returns n times 2^-133 (FP8: times 2^-120) in pairs 0 and 2, and 2^kOddShift times that in 1 and 3.
constexpr int kOddShift = !kBytes && kHighBits == 0 ? 4 : 0;
// Its integers are unsigned: they are too large by this offset.
constexpr int kRawOffset = kFp8 ? 0 : OFFSET;
constexpr float kRawUnit = kFp8 ? 0x1p24f : 0x1p37f; // makes up for 2^-133 (2^-120) and x's 2^96

// The bf16 pair of an integer n >= 0 in pair p, in the form of raw_quants_of().
constexpr u32 raw_pair(u32 n, int p) { return (n << (p % 2 * kOddShift)) * 0x00010001u; }

INLINE void raw_quants_of(const Unit &u, int c, u32 (&a)[4])
{
#pragma unroll
    for (int p = 0; p < 4; p++) {
        if constexpr (kFp8) {
            u32 w = u.low[2 * c + p / 2];
            a[p] = field(w, p % 2 ? 0 : -8, 0x80008000u) | field(w, p % 2 ? 4 : -4, 0x07f007f0u);
        } else if constexpr (kBytes) {
            a[p] = field(u.low[2 * c + p / 2], p % 2 * 8, 0x00ff00ffu) ^ 0x00800080u;
        } else if constexpr (kHighBits == 0) {
            a[p] = field(u.low[c], p / 2 * 8, p % 2 ? 0x00f000f0u : 0x000f000fu);
        } else {
            a[p] = integers_of(u, c, p);
        }
    }
}

// Byte i of w as a float, less `zero`: makes 2^23 + byte by its bits and subtracts 2^23 + zero.
INLINE float byte_f32(u32 w, int i, float zero)
{
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440 + i)) - (8388608.f + zero);
}

INLINE float scale_f32(u16 v) { return kPower ? bf16_f32(v) : f16_f32(v); }

constexpr u32 kNibbles = 0x0f0f0f0fu; // of Q2_K's bytes: minima are the high nibbles

// The scale of chunk c. `half` selects that of its second 16 columns where scales cover 16; others have one for all 32.
INLINE float scale_of(const Unit &u, int c, int half)
{
    if constexpr (kFp8)
        return __uint_as_float(u.scale[0]);
    else if constexpr (kHalves && kMins)
        return f16_f32((u16)u.super) * byte_f32(u.scale[c / 2] & kNibbles, c % 2 * 2 + half, 0.f);
    else if constexpr (kHalves)
        return __uint_as_float(u.super) * byte_f32(u.scale[c / 2], c % 2 * 2 + half, 128.f);
    else if constexpr (kSuper)
        return f16_f32((u16)u.super) * byte_f32(u.scale[0], c, 0.f);
    else if constexpr (kMins)
        return f16_f32((u16)u.scale[c]);
    else
        return scale_f32((u16)(u.scale[c / 2] >> (c % 2 * 16)));
}

INLINE float min_of(const Unit &u, int c, int half)
{
    if constexpr (!kMins)
        return 0.f;
    else if constexpr (kHalves)
        return -(f16_f32((u16)(u.super >> 16)) * byte_f32(u.scale[c / 2] >> 4 & kNibbles, c % 2 * 2 + half, 0.f));
    else if constexpr (kSuper)
        return -(f16_f32((u16)(u.super >> 16)) * byte_f32(u.scale[1], c, 0.f));
    else
        return f16_f32((u16)(u.scale[c] >> 16));
}

struct RowScale {
    float scale[2], min[2]; // of a chunk; the second: of its second 16 columns, where scales cover 16
};

// The scales of chunk c in row g of a unit in shared memory. c may differ from lane to lane.
template <int CHUNKS> INLINE RowScale row_scale(const u8 *pair, const u8 *unit, int g, int c)
{
    const u8 *row = unit + scales_at(CHUNKS) + g * scale_bytes(CHUNKS), *super = pair + 2 * unit_bytes(4) + g * 4;
    RowScale r = {};
    if constexpr (kFp8) {
        r.scale[0] = *(const float *)row;
    } else if constexpr (kHalves && kMins) {
        u32 s = *(const u16 *)(row + 2 * c), d = *(const u32 *)super;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.scale[i] = f16_f32((u16)d) * byte_f32(s & kNibbles, i, 0.f);
            r.min[i] = -(f16_f32((u16)(d >> 16)) * byte_f32(s >> 4 & kNibbles, i, 0.f));
        }
    } else if constexpr (kHalves) {
        u32 s = *(const u16 *)(row + 2 * c);
        float d = *(const float *)super;
        r.scale[0] = d * byte_f32(s, 0, 128.f);
        r.scale[1] = d * byte_f32(s, 1, 128.f);
    } else if constexpr (kSuper) {
        uint2 s = *(const uint2 *)row;
        u32 d = *(const u32 *)super;
        r.scale[0] = f16_f32((u16)d) * byte_f32(s.x, c, 0.f);
        r.min[0] = -(f16_f32((u16)(d >> 16)) * byte_f32(s.y, c, 0.f));
    } else if constexpr (kMins) {
        u32 s = *(const u32 *)(row + 4 * c);
        r.scale[0] = f16_f32((u16)s);
        r.min[0] = f16_f32((u16)(s >> 16));
    } else {
        r.scale[0] = scale_f32(*(const u16 *)(row + 2 * c));
    }
    return r;
}

INLINE void values_of(const Unit &u, int c, float (&v)[8])
{
    u32 a[4];
    quants_of(u, c, a);
    float low = scale_of(u, c, 0), high = kHalves ? scale_of(u, c, 1) : low;
    float low_min = min_of(u, c, 0), high_min = kHalves ? min_of(u, c, 1) : low_min;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        float scale = p < 2 ? low : high, min = p < 2 ? low_min : high_min;
        v[2 * p] = kMins ? scale * bf16_low(a[p]) + min : scale * bf16_low(a[p]);
        v[2 * p + 1] = kMins ? scale * bf16_high(a[p]) + min : scale * bf16_high(a[p]);
    }
}

// Stores the 8 values that lane q of a quad has of a chunk, as bf16, to their places in a row of K elements. Values
// beyond the row are dropped.
INLINE void store_values(u16 *row, int chunk, int q, const float (&v)[8])
{
    int k = chunk * 32 + (kHalves ? 4 : 8) * q;
    uint4 out = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                           pack_bf16(v[6], v[7]));
    if constexpr (kHalves) {
        *(uint2 *)(row + k) = make_uint2(out.x, out.y);
        *(uint2 *)(row + k + 16) = make_uint2(out.z, out.w);
    } else if (K % 32 == 0 || k < K) {
        store16(row + k, out);
    }
}
