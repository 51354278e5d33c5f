/* The weight layout that the vector implementations share: tiles of 16 rows.
 *
 * A lane of a vector is a row. Quantised types: each 32 columns of a tile are a block; a group is 4
 * consecutive columns of all 16 rows, 64 bytes, which is an operand of vpdpbusd and a row of an AMX
 * tile. So every instruction set reads one layout, and no sum runs across lanes.
 *
 *   tile     [ quants of block 0 | 1 | ... ][ scales of block 0 | 1 | ... ][ of each 256 columns ]
 *
 *   quants   8 bit  group 0 .. group 7                       512 bytes, unsigned: q + 128
 *            4 bit  group 0 .. group 3 in the low nibbles,   256
 *                   group 4 .. group 7 in the high ones
 *            5 bit  and 64 bytes whose bit g is the fifth bit of group g
 *            6 bit  and 2 x 64 bytes: two bits a group, groups 0 .. 3, then 4 .. 7
 *            2 bit  these 2 x 64 bytes alone                  128
 *   scales   blocks of 32:  f16 d[16] (bf16 for MXFP4), and f16 m[16] where the type has a minimum
 *            K types:       u8 s[16], u8 t[16]; each 256 columns: f16 d[16], f16 m[16]
 *                           Q4_K, Q5_K: x = (d s) q - (m t);  IQ4_XS: x = (d s) q
 *                           Q6_K, Q3_K: x = (d s) q, (d t) q for the first and last 16 columns
 *                           Q2_K: the same, of the low nibbles of s and t, less the high ones
 *                           times m
 *   F32 F16  columns one after the other, 16 rows each
 *   BF16     pairs of columns, 16 rows of 2 each; padded with zeros to 32 columns
 *   FP8      as BF16, which holds its values exactly; scales stay outside
 *
 * In a paired weight, tile 2i holds 16 rows of the gate from row 16 i on, and tile 2i + 1 holds the
 * same rows of up. Rows beyond the last are zeros. Bytes added: the padding, 4 in 144 for Q4_K's
 * unpacked scales; FP8 takes twice its bytes. */
#ifndef VT_OPS_LINEAR_PACK_H
#define VT_OPS_LINEAR_PACK_H

#include "ops/op.h"

enum { LINEAR_TILE = 16, LINEAR_BLOCK = 32, LINEAR_SUPER = 256 };

typedef struct linear_traits {
    int bits;    /* of a stored quant; 0: a float type */
    int offset;  /* the value is quant - offset */
    bool min;    /* each scale has a minimum beside it */
    bool halves; /* a scale covers 16 columns */
    bool k;      /* scales of 32 columns are integers, multiplied by one scale for 256 columns */
    bool power;  /* scales are BF16, not F16 */
    int form;    /* the flags as a number, VT_FORM_... */
} linear_traits;

static inline __attribute__((always_inline)) linear_traits linear_traits_of(vt_dtype type)
{
    switch (type) {
#define VT_QUANT(name, block, bytes, gguf, n_bits, zero, flags)         \
    case VT_##name:                                                     \
        return (linear_traits){.bits = n_bits,                          \
                               .offset = zero,                          \
                               .min = ((flags)&VT_FORM_MIN) != 0,       \
                               .halves = ((flags)&VT_FORM_HALVES) != 0, \
                               .k = ((flags)&VT_FORM_SUPER) != 0,       \
                               .power = ((flags)&VT_FORM_POWER) != 0,   \
                               .form = (flags)};
#include "base/dtypes.h"
    default:
        return (linear_traits){0};
    }
}

static inline __attribute__((always_inline)) int linear_quant_bytes(linear_traits t)
{
    return t.bits == 8 ? 512 : 256 + 64 * (t.bits - 4);
}

static inline __attribute__((always_inline)) int linear_scale_bytes(linear_traits t)
{
    return t.k || !t.min ? 32 : 64;
}

/* A block of a quantised row, unpacked to bytes in column order: 32 columns, for K types 256. */
typedef struct linear_plain_block {
    uint8_t q[LINEAR_SUPER]; /* of 8 bits: q + 128 */
    uint8_t s[16], t[8];     /* K types: scales, minima; Q2_K: both in s, as stored */
    uint8_t d[2], m[2];      /* f16, as stored; or bf16 (linear_traits.power) */
} linear_plain_block;

void linear_to_plain(vt_dtype type, const uint8_t *block, linear_plain_block *p);

typedef struct linear_layout {
    int64_t blocks;               /* of 32 columns; quantised types */
    int64_t scales_at, supers_at; /* offsets in a tile */
    int64_t tile_bytes;           /* a multiple of 64 */
    int64_t n_tiles;
} linear_layout;

linear_layout linear_layout_of(const vt_weight *w);
/* The stacked weight's row in lane r of a tile, -1 beyond the last. */
int64_t linear_row_of(const vt_weight *w, int64_t tile, int r);
/* The type that a float weight has in its tiles. */
static inline vt_dtype linear_packed_type(const vt_weight *w)
{
    return w->dtype == VT_FP8_E4M3 ? VT_BF16 : w->dtype;
}
/* The packing that every vector row reads; a unit is a tile. */
extern const vt_packing linear_tile_packing;
size_t linear_pack_bytes(const vt_weight *w);
size_t linear_pack_unit(const vt_weight *w);
void linear_pack(const vt_weight *w, int64_t first, int64_t n, void *dst);

#endif
