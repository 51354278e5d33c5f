/* Packing rows of a file into quantised tiles (linear_quant.h describes the layout).
 *
 * A row's blocks are first unpacked to bytes in column order (linear_pack.h). Then each byte goes
 * to the place from which its lane reads it. */
#include "ops/linear/quant/linear_quant.h"

#include <string.h>

#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_pack.h"

enum { CHUNK = 32, UNIT_CHUNKS = 4, LANES_OF_ROW = 4, SUPER_BYTES = 4 };

/* The properties of a type that decide where its bits go. */
typedef struct quant_form {
    vt_dtype type;
    bool bytes, halves, super, mins;
    int low_bits, high_bits;
    int row_scale_bytes; /* in a full unit */
} quant_form;

static quant_form form_of(vt_dtype type)
{
    linear_traits t = linear_traits_of(type);
    bool fp8 = type == VT_FP8_E4M3, bytes = fp8 || t.bits == 8;
    return (quant_form){.type = type,
                        .bytes = bytes,
                        .halves = t.halves,
                        .super = t.k,
                        .mins = t.min,
                        .low_bits = bytes || t.bits == 2 ? 0 : 4,
                        .high_bits = t.bits == 2                ? 2
                                     : t.bits > 4 && t.bits < 8 ? t.bits - 4
                                                                : 0,
                        .row_scale_bytes = fp8     ? 4
                                           : t.k   ? 8
                                           : t.min ? 16
                                                   : 8};
}

static int words_of(int chunks) { return chunks == 3 ? 4 : chunks; }

static int low_bytes(const quant_form *f, int chunks)
{
    return f->bytes ? chunks * 256 : words_of(chunks) * 32 * f->low_bits;
}

static int scales_at(const quant_form *f, int chunks)
{
    return low_bytes(f, chunks) + f->high_bits * 128;
}

static int row_scale_bytes(const quant_form *f, int chunks)
{
    if (f->type == VT_FP8_E4M3 || f->super)
        return f->row_scale_bytes;
    return f->row_scale_bytes * words_of(chunks) / UNIT_CHUNKS;
}

static int unit_bytes(const quant_form *f, int chunks)
{
    return scales_at(f, chunks) + QUANT_TILE * row_scale_bytes(f, chunks);
}

static int64_t unit_at(const quant_form *f, int64_t unit)
{
    int64_t at = unit * unit_bytes(f, UNIT_CHUNKS);
    return f->super ? at + unit / 2 * QUANT_TILE * SUPER_BYTES : at;
}

bool linear_quant_type(vt_dtype type, int64_t cols)
{
    return (vt_dtype_quantised(type) || type == VT_FP8_E4M3) && cols % 8 == 0;
}

int64_t linear_quant_tile_bytes(vt_dtype type, int64_t cols)
{
    quant_form f = form_of(type);
    int64_t chunks = vt_ceil_div(cols, CHUNK);
    int tail = (int)(chunks % UNIT_CHUNKS);
    return unit_at(&f, chunks / UNIT_CHUNKS) + (tail ? unit_bytes(&f, tail) : 0);
}

int64_t linear_quant_unit_bytes(vt_dtype type)
{
    quant_form f = form_of(type);
    return unit_bytes(&f, UNIT_CHUNKS) + (f.super ? QUANT_TILE * SUPER_BYTES : 0);
}

int64_t linear_quant_tiles(int64_t rows) { return vt_ceil_div(rows, QUANT_TILE); }

size_t linear_quant_matrix_bytes(vt_dtype type, int64_t rows, int64_t cols, bool paired)
{
    int64_t tiles = paired ? 2 * linear_quant_tiles(rows / 2) : linear_quant_tiles(rows);
    return (size_t)(tiles * linear_quant_tile_bytes(type, cols));
}

/* ---- one chunk of one row ---- */

static uint64_t load8(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void or_u32(uint8_t *p, uint32_t v)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    w |= v;
    memcpy(p, &w, sizeof w);
}

/* The 8 quants of quad lane q in a chunk, element e in byte e. */
static uint64_t elements(const quant_form *f, const uint8_t *quant, int q)
{
    if (!f->halves)
        return load8(quant + 8 * q);
    uint32_t first, second;
    memcpy(&first, quant + 4 * q, sizeof first);
    memcpy(&second, quant + 16 + 4 * q, sizeof second);
    return first | (uint64_t)second << 32;
}

/* The four fields of 1, 2 or 4 bits at bits 0, 16, 32 and 48 of v, side by side. A product with a
 * sum of powers of two adds up shifted copies of v: in each of them another field comes to its
 * place in the upper 16 bits, and no two fields of any copies overlap. */
static uint32_t gather(uint64_t v, int bits)
{
    static const uint64_t kCopies[] = {
        [1] = UINT64_C(1) << 48 | UINT64_C(1) << 33 | UINT64_C(1) << 18 | UINT64_C(1) << 3,
        [2] = UINT64_C(1) << 48 | UINT64_C(1) << 34 | UINT64_C(1) << 20 | UINT64_C(1) << 6,
        [4] = UINT64_C(1) << 48 | UINT64_C(1) << 36 | UINT64_C(1) << 24 | UINT64_C(1) << 12};
    return (uint32_t)(v * kCopies[bits] >> 48);
}

/* One half-word of even elements below one of odd elements: the low or the high bits of a lane. */
static uint32_t pairs(uint64_t v, int bits)
{
    uint64_t field = UINT64_C(0x0001000100010001) * ((1u << bits) - 1);
    return gather(v & field, bits) | gather(v >> 8 & field, bits) << 16;
}

/* Swaps bytes 1 and 2 of every four. */
static uint64_t swap_middle(uint64_t v)
{
    const uint64_t ends = UINT64_C(0xff0000ffff0000ff), second = UINT64_C(0x0000ff000000ff00);
    return (v & ends) | (v & second) << 8 | (v >> 8 & second);
}

static void deal_bytes(const uint8_t *quant, int g, int c, int chunks, uint8_t *unit)
{
    int beside = chunks - c / 2 * 2 == 1 ? 1 : 2; /* chunks in the 16 bytes of a lane */
    uint8_t *to = unit + c / 2 * 512 + LANES_OF_ROW * g * beside * 8 + c % 2 * 8;
    for (int q = 0; q < LANES_OF_ROW; q++, to += beside * 8) {
        uint64_t v = swap_middle(load8(quant + 8 * q));
        memcpy(to, &v, sizeof v);
    }
}

static void deal_high_bits(const quant_form *f, const uint8_t *quant, int g, int c, int chunks,
                           uint8_t *unit)
{
    bool one = f->high_bits == 1;
    int bit = one ? UNIT_CHUNKS * c : 2 * (c % 2 * 4);
    uint8_t *to = unit + low_bytes(f, chunks) + LANES_OF_ROW * g * f->high_bits * 4 +
                  (one ? 0 : c / 2 * 4);
    for (int q = 0; q < LANES_OF_ROW; q++, to += f->high_bits * 4) {
        uint64_t v = elements(f, quant, q) >> f->low_bits;
        or_u32(to, (one ? pairs(v, 1) : pairs(v, 2)) << bit);
    }
}

/* Writes the 32 quants of row g in chunk c of a unit that has `chunks` of them. A word of 8 quants
 * is dealt by a few operations on 64 bits: taken one by one, the quants of a 4-bit model took
 * longer to pack than to cross the bus. */
static void deal_chunk(const quant_form *f, const uint8_t *quant, int g, int c, int chunks,
                       uint8_t *unit)
{
    if (f->bytes) {
        deal_bytes(quant, g, c, chunks, unit);
        return;
    }
    int stride = words_of(chunks) * 4;
    uint8_t *to = unit + LANES_OF_ROW * g * stride + c * 4;
    for (int q = 0; q < LANES_OF_ROW && f->low_bits; q++, to += stride) {
        uint32_t low = pairs(elements(f, quant, q), 4);
        memcpy(to, &low, sizeof low);
    }
    if (f->high_bits)
        deal_high_bits(f, quant, g, c, chunks, unit);
}

static void deal_scales(const quant_form *f, const linear_plain_block *p, int i, int g, int c,
                        int chunks, uint8_t *unit)
{
    uint8_t *to = unit + scales_at(f, chunks) + g * row_scale_bytes(f, chunks);
    if (f->halves) {
        const uint8_t flip = f->mins ? 0 : 0x80;
        to[2 * c] = p->s[2 * i] ^ flip;
        to[2 * c + 1] = p->s[2 * i + 1] ^ flip;
    } else if (f->super) {
        to[c] = p->s[i];
        to[4 + c] = p->t[i];
    } else if (f->mins) {
        memcpy(to + 4 * c, p->d, 2);
        memcpy(to + 4 * c + 2, p->m, 2);
    } else {
        memcpy(to + 2 * c, p->d, 2);
    }
}

/* ---- rows ---- */

static int chunks_of_unit(int64_t chunks, int64_t unit)
{
    int64_t left = chunks - unit * UNIT_CHUNKS;
    return left < UNIT_CHUNKS ? (int)left : UNIT_CHUNKS;
}

static void pack_quantised_row(const quant_form *f, const uint8_t *src, int64_t cols, int g,
                               uint8_t *tile)
{
    const vt_dtype_info *info = vt_dtype_get(f->type);
    int64_t chunks = cols / CHUNK;
    int run = info->block / CHUNK;
    linear_plain_block p;
    for (int64_t b = 0; b < chunks; b += run, src += info->bytes) {
        linear_to_plain(f->type, src, &p);
        for (int i = 0; i < run; i++) {
            int64_t chunk = b + i, u = chunk / UNIT_CHUNKS;
            int c = (int)(chunk % UNIT_CHUNKS), n = chunks_of_unit(chunks, u);
            uint8_t *unit = tile + unit_at(f, u), *quant = p.q + CHUNK * i;
            for (int j = 0; f->bytes && j < CHUNK; j++)
                quant[j] ^= 0x80; /* the unpacked bytes are q + 128 */
            deal_chunk(f, quant, g, c, n, unit);
            deal_scales(f, &p, i, g, c, n, unit);
        }
        if (f->super) {
            uint8_t *d = tile + unit_at(f, b / UNIT_CHUNKS + 2) - QUANT_TILE * SUPER_BYTES +
                         SUPER_BYTES * g;
            float d32 = vt_f16_to_f32((uint16_t)(p.d[0] | p.d[1] << 8));
            if (f->halves && !f->mins) {
                memcpy(d, &d32, sizeof d32);
            } else {
                memcpy(d, p.d, 2);
                memcpy(d + 2, p.m, 2);
            }
        }
    }
}

static void pack_fp8_row(const quant_form *f, const uint8_t *src, int64_t cols, int g,
                         const vt_tensor *scale, int64_t row, uint8_t *tile)
{
    int64_t chunks = vt_ceil_div(cols, CHUNK);
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t u = chunk / UNIT_CHUNKS, left = cols - chunk * CHUNK;
        uint8_t quant[CHUNK] = {0}, *unit = tile + unit_at(f, u);
        int c = (int)(chunk % UNIT_CHUNKS), n = chunks_of_unit(chunks, u);
        memcpy(quant, src + chunk * CHUNK, (size_t)(left < CHUNK ? left : CHUNK));
        deal_chunk(f, quant, g, c, n, unit);
        if (c == 0) {
            float s = linear_scale_at(scale, row, chunk * CHUNK);
            memcpy(unit + scales_at(f, n) + g * f->row_scale_bytes, &s, sizeof s);
        }
    }
}

/* Finds the part and the row that are row g of a tile. False beyond the last row. */
static bool find_row(const linear_quant_source *s, int64_t tile, int g, int32_t *part, int64_t *row)
{
    *part = 0;
    *row = tile * QUANT_TILE + g;
    if (s->paired) {
        int64_t half = linear_quant_tiles(s->part[0].rows->dim[0]);
        *part = tile >= half;
        *row -= *part * half * QUANT_TILE;
        return *row < s->part[*part].rows->dim[0];
    }
    for (; *part < s->n_parts && *row >= s->part[*part].rows->dim[0]; ++*part)
        *row -= s->part[*part].rows->dim[0];
    return *part < s->n_parts;
}

void linear_quant_pack(const linear_quant_source *s, int64_t first, int64_t n, void *out)
{
    const vt_tensor *t = s->part[0].rows;
    int64_t cols = t->dim[1], bytes = linear_quant_tile_bytes(t->dtype, cols);
    quant_form f = form_of(t->dtype);
    memset(out, 0, (size_t)(n * bytes));
    for (int64_t i = 0; i < n; i++)
        for (int g = 0; g < QUANT_TILE; g++) {
            int32_t part;
            int64_t row;
            if (!find_row(s, first + i, g, &part, &row))
                continue;
            const uint8_t *src = linear_part_row(s->part[part].rows, row);
            uint8_t *tile = (uint8_t *)out + i * bytes;
            if (t->dtype == VT_FP8_E4M3)
                pack_fp8_row(&f, src, cols, g, s->part[part].scale, row, tile);
            else
                pack_quantised_row(&f, src, cols, g, tile);
        }
}
