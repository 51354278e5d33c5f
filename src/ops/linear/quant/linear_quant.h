/* Quantised tiles: the form of quantised and FP8 matrices in device memory. They keep the bits of
 * the file, in the order in which the mma fragments of a warp read them. linear_quant_pack makes
 * them once, at load. linear_quant.cu (few tokens), linear_quant_sm90.cu, quant_panel.cu (many),
 * moe/moe_quant.cu and moe_quant_sm90.cu (experts) and embed/embed_quant.cu read them, all through
 * quant_tile.cuh.
 *
 *   matrix   tiles of 8 rows, one after the other; rows beyond the last are zeros. In a pair
 *            (gate, up) each half begins a tile of its own.
 *   tile     units of 128 columns, one after the other; the last may be shorter: 1 to 3 chunks
 *   unit     [ low bits | high bits | scales of the 8 rows ]
 *   chunk    32 columns; one block of the formats with 32
 *
 * Lane 4 g + q of a warp reads row g of a tile. It has 8 elements of every chunk: columns 8 q to
 * 8 q + 7 (types whose scales cover 16 columns: 4 q to 4 q + 3 and 16 + 4 q to 16 + 4 q + 3).
 * Its pair p is elements 2 p (the low half of a bf16 pair) and 2 p + 1 (the high half).
 *
 *   low bits    [32 lanes][chunks] words of 8 nibbles: element 2 p in bits 4 p .., 2 p + 1 in bits
 *               16 + 4 p ..  A unit of 4 chunks is 16 bytes a lane. (3 chunks take the room of 4.)
 *               Q8_0, FP8: bytes, 2 words a chunk, word i holding elements 4 i, 4 i + 2, 4 i + 1,
 *               4 i + 3; [32 lanes] of chunks 0 and 1, then [32 lanes] of chunks 2 and 3.
 *               Q2_K: none.
 *   high bits   Q5: [32 lanes] one word: pair p of chunk c in bits 4 c + p and 16 + 4 c + p
 *               Q6 Q2: [32 lanes] two words, chunks 0 and 1, then 2 and 3: pair p of chunk c in the
 *               two bits from 2 (4 (c % 2) + p) and 16 + 2 (4 (c % 2) + p)
 *   scales      [8 rows] of
 *               Q8_0 Q4_0 Q5_0   f16 d, for each chunk
 *               IQ4_NL MXFP4     as Q8_0, their values being bytes; MXFP4: bf16 d
 *               Q4_1 Q5_1        f16 d, f16 m, for each chunk
 *               Q4_K Q5_K        u8 s[4], u8 m[4]: the 6-bit scales and minima of the 4 chunks
 *               IQ4_XS           as Q4_K, without minima; the values are bytes, as in Q8_0
 *               Q6_K Q3_K        u8 s[8]: the 8-bit scales + 128 of 8 groups of 16
 *               Q2_K             u8 s[8]: those of 8 groups of 16, minima in the high nibbles
 *               FP8              f32: the row's scale for these 128 columns (per tensor: the same
 *                                everywhere; stacked matrices keep their own)
 *   K types     after each two units: [8 rows] f16 d, f16 m (Q6_K, Q3_K: f32 d)
 *
 * Bytes of a 128 x 8 unit, compared with the file:
 *
 *   Q8_0 1088, Q4_0 576, Q4_1 640, Q5_0 704, Q5_1 768    the same (Q2_K 336, all in all, too)
 *   Q4_K 592, Q5_K 720, Q6_K 848                         +2.8 %, +2.3 %, +1.0 %
 *   IQ4_XS 1104                                          twice the file's 544
 *   FP8 1056                                             +3.1 % (a scale for a row of 128 columns)
 *
 * and padding: rows to 8, columns to 32, a 5-bit format's high bits to 128 columns. (Scales of Q4_K
 * unpacked to f16 would cost 11 %; left in 6 bits, a few more integer instructions a chunk.)
 * FP8's NaN codes (0x7f, 0xff), which no quantiser writes, read as +-480, by the wgmma kernels as
 * NaN. */
#ifndef VT_OPS_LINEAR_QUANT_H
#define VT_OPS_LINEAR_QUANT_H

#include "ops/linear/linear_pack.h"
#include "ops/op.h"

enum { QUANT_TILE = 8, QUANT_UNIT = 128 };

/* Tiles are made from these: a few matrices of one type, one below the other. Each may be a
 * view of a larger tensor. */
typedef struct linear_quant_source {
    struct {
        const vt_tensor *rows;  /* [rows, cols] as in the file */
        const vt_tensor *scale; /* FP8: one number, or 128 x 128 blocks; or NULL */
    } part[VT_WEIGHT_PARTS];
    int32_t n_parts;
    bool paired; /* two parts of equal rows; each begins a tile */
} linear_quant_source;

/* The parameters of JIT_SPEC by which kernels know a type (quant_tile.cuh): its row of
 * base/dtypes.h. */
#define LINEAR_QUANT_PARAMS(type)                                                     \
    {"bits", linear_traits_of(type).bits}, {"offset", linear_traits_of(type).offset}, \
    {                                                                                 \
        "form", linear_traits_of(type).form                                           \
    }

/* Returns true if matrices of this type and width have tiles: cols must be a multiple of 8. */
bool linear_quant_type(vt_dtype type, int64_t cols);
int64_t linear_quant_tile_bytes(vt_dtype type, int64_t cols);
/* The bytes of a whole unit of a tile, with the super-scales of its row if the type has some. */
int64_t linear_quant_unit_bytes(vt_dtype type);
/* The number of tiles of one matrix, or of one half of a pair. */
int64_t linear_quant_tiles(int64_t rows);
size_t linear_quant_matrix_bytes(vt_dtype type, int64_t rows, int64_t cols, bool paired);

/* Writes tiles [first, first + n) of the matrix to out. Threads may write disjoint ranges at the
 * same time. */
void linear_quant_pack(const linear_quant_source *s, int64_t first, int64_t n, void *out);

#endif
