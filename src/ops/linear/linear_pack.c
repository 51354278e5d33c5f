/* Packing: GGUF rows to the tiles of linear_pack.h. All workers do this together, once at load.
 *
 * A row's block is first unpacked to one form, quants as bytes in column order, and then
 * distributed over the 16-row tile in units of 4 bytes. The step through bytes saves a function for
 * each pair of formats and costs little: 1.9 billion weights per second and core for Q4_1
 * on a Sapphire Rapids, 70 ms for SmolLM2-135M. */
#include "ops/linear/linear_pack.h"

#include <assert.h>
#include <string.h>

#include "base/quant.h"
#include "ops/linear/linear_impl.h"

static void nibbles(const uint8_t *src, uint8_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = src[j] & 15;
        q[j + 16] = src[j] >> 4;
    }
}

/* Bit j of src goes to bit 4 of q[j], eight quants at a time: a byte's copies in all eight bytes
 * of a word keep a different bit each, which an addition carries into bit 7. */
static void add_fifth_bits(const uint8_t *src, uint8_t *q)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), each = UINT64_C(0x8040201008040201);
    for (int j = 0; j < LINEAR_BLOCK; j += 8) {
        uint64_t v, bits = (src[j / 8] * ones) & each;
        memcpy(&v, q + j, sizeof v);
        v |= ((bits + 0x7f * ones) & (0x80 * ones)) >> 3;
        memcpy(q + j, &v, sizeof v);
    }
}

/* 6-bit scales s and minima t of eight groups in 12 bytes (base/quant.c draws them). */
static void k_scales(const uint8_t *src, linear_plain_block *p)
{
    for (int i = 0; i < 4; i++) {
        p->s[i] = src[i] & 63;
        p->t[i] = src[4 + i] & 63;
        p->s[4 + i] = (uint8_t)((src[8 + i] & 15) | src[i] >> 6 << 4);
        p->t[4 + i] = (uint8_t)(src[8 + i] >> 4 | src[4 + i] >> 6 << 4);
    }
}

/* Q4_K and Q5_K: each 32 bytes hold the low nibbles of one group of 32 and the high ones of the
 * next. */
static void k_nibbles(const uint8_t *src, uint8_t *q)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 32; j++) {
            q[64 * i + j] = src[32 * i + j] & 15;
            q[64 * i + 32 + j] = src[32 * i + j] >> 4;
        }
}

static void k_fifth_bits(const uint8_t *src, uint8_t *q)
{
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 32; j++)
            q[32 * i + j] |= (uint8_t)((src[j] >> i & 1) << 4);
}

/* Q6_K: halves of 128 columns; the four runs of 32 in a half share bytes (base/quant.c). */
static void q6_k_quants(const uint8_t *low, const uint8_t *high, uint8_t *q)
{
    for (int n = 0; n < 2; n++, low += 64, high += 32, q += 128)
        for (int j = 0; j < 32; j++) {
            q[j] = (uint8_t)((low[j] & 15) | (high[j] & 3) << 4);
            q[j + 32] = (uint8_t)((low[j + 32] & 15) | (high[j] >> 2 & 3) << 4);
            q[j + 64] = (uint8_t)(low[j] >> 4 | (high[j] >> 4 & 3) << 4);
            q[j + 96] = (uint8_t)(low[j + 32] >> 4 | (high[j] >> 6 & 3) << 4);
        }
}

/* A function for each type; a missing one does not compile (linear_to_plain). d and m are set. */

static void plain_Q8_0(const uint8_t *b, linear_plain_block *p)
{
    for (int j = 0; j < LINEAR_BLOCK; j++)
        p->q[j] = b[2 + j] ^ 0x80;
}

static void plain_Q4_0(const uint8_t *b, linear_plain_block *p) { nibbles(b + 2, p->q); }

static void plain_Q4_1(const uint8_t *b, linear_plain_block *p) { nibbles(b + 4, p->q); }

static void plain_Q5_0(const uint8_t *b, linear_plain_block *p)
{
    nibbles(b + 6, p->q);
    add_fifth_bits(b + 2, p->q);
}

static void plain_Q5_1(const uint8_t *b, linear_plain_block *p)
{
    nibbles(b + 8, p->q);
    add_fifth_bits(b + 4, p->q);
}

static void plain_Q4_K(const uint8_t *b, linear_plain_block *p)
{
    k_scales(b + 4, p);
    k_nibbles(b + 16, p->q);
}

static void plain_Q5_K(const uint8_t *b, linear_plain_block *p)
{
    k_scales(b + 4, p);
    k_nibbles(b + 48, p->q);
    k_fifth_bits(b + 16, p->q);
}

static void plain_Q6_K(const uint8_t *b, linear_plain_block *p)
{
    q6_k_quants(b, b + 128, p->q);
    memcpy(p->s, b + 192, 16);
    memcpy(p->d, b + 208, 2);
}

static void plain_Q3_K(const uint8_t *b, linear_plain_block *p)
{
    for (int e = 0; e < LINEAR_SUPER; e++)
        p->q[e] = (uint8_t)(vt_q3_k_quant(b, e) + 32);
    vt_q3_k_scales(b + 96, (int8_t *)p->s);
    memcpy(p->d, b + 108, 2);
}

static void plain_Q2_K(const uint8_t *b, linear_plain_block *p)
{
    for (int e = 0; e < LINEAR_SUPER; e++)
        p->q[e] = (uint8_t)vt_k_two_bits(b + 16, e);
    memcpy(p->s, b, 16);
    memcpy(p->d, b + 80, 2);
    memcpy(p->m, b + 82, 2);
}

static void table_values(const uint8_t *src, const int8_t *table, uint8_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = (uint8_t)(table[src[j] & 15] + 128);
        q[j + 16] = (uint8_t)(table[src[j] >> 4] + 128);
    }
}

static void plain_IQ4_NL(const uint8_t *b, linear_plain_block *p)
{
    table_values(b + 2, vt_iq4_nl, p->q);
}

/* A negative scale is read as a positive one of opposite values, for scales of 32 columns are
 * unsigned. */
static void plain_IQ4_XS(const uint8_t *b, linear_plain_block *p)
{
    for (int i = 0; i < LINEAR_SUPER / LINEAR_BLOCK; i++) {
        int s = vt_iq4_xs_scale(b, i);
        uint8_t *q = p->q + LINEAR_BLOCK * i;
        table_values(b + 8 + LINEAR_BLOCK / 2 * i, vt_iq4_nl, q);
        for (int j = 0; j < LINEAR_BLOCK && s < 0; j++)
            q[j] = (uint8_t)-q[j];
        p->s[i] = (uint8_t)(s < 0 ? -s : s);
        p->t[i] = 0;
    }
    memset(p->m, 0, sizeof p->m);
}

static void plain_MXFP4(const uint8_t *b, linear_plain_block *p)
{
    uint16_t d = vt_mxfp4_scale(b[0]);
    memcpy(p->d, &d, sizeof d);
    table_values(b + 1, vt_mxfp4, p->q);
}

void linear_to_plain(vt_dtype type, const uint8_t *b, linear_plain_block *p)
{
    memcpy(p->d, b, 2);
    memcpy(p->m, b + 2, 2);
    switch (type) {
#define VT_QUANT(name, ...) \
    case VT_##name:         \
        plain_##name(b, p); \
        break;
#include "base/dtypes.h"
    default:
        assert(!"a quantised type");
    }
}

/* Writes 32 quants of row `r` of a tile to the tile's block at dst. */
static void deal_quants(int bits, const uint8_t *q, int r, uint8_t *dst)
{
    if (bits == 8) {
        for (int g = 0; g < 8; g++)
            memcpy(dst + 64 * g + 4 * r, q + 4 * g, 4);
        return;
    }
    const int nibbles = bits == 2 ? 0 : 4; /* bits of a quant that are not in a plane */
    uint8_t low[16];
    for (int j = 0; j < 16; j++)
        low[j] = (uint8_t)((q[j] & 15) | q[j + 16] << 4);
    for (int g = 0; g < nibbles; g++)
        memcpy(dst + 64 * g + 4 * r, low + 4 * g, 4);
    dst += 64 * nibbles + 4 * r;
    for (int i = 0; i < 4 && bits != 4; i++) {
        unsigned plane = 0;
        for (int g = 0; g < 8; g++)
            plane |= (unsigned)(q[4 * g + i] >> nibbles) << (bits == 5 ? g : 2 * g);
        dst[i] = (uint8_t)plane;
        if (bits != 5)
            dst[64 + i] = (uint8_t)(plane >> 8);
    }
}

static void pack_quantised_row(const vt_weight *w, const linear_layout *l, const uint8_t *src,
                               int r, uint8_t *tile)
{
    linear_traits tr = linear_traits_of(w->dtype);
    const vt_dtype_info *info = vt_dtype_get(w->dtype);
    int q_bytes = linear_quant_bytes(tr), s_bytes = linear_scale_bytes(tr);
    int run = info->block / LINEAR_BLOCK;
    linear_plain_block p;
    for (int64_t b = 0; b < l->blocks; b += run, src += info->bytes) {
        linear_to_plain(w->dtype, src, &p);
        for (int i = 0; i < run; i++) {
            uint8_t *s = tile + l->scales_at + (b + i) * s_bytes;
            deal_quants(tr.bits, p.q + LINEAR_BLOCK * i, r, tile + (b + i) * q_bytes);
            if (tr.k) {
                s[r] = tr.halves ? p.s[2 * i] : p.s[i];
                s[16 + r] = tr.halves ? p.s[2 * i + 1] : p.t[i];
            } else {
                memcpy(s + 2 * r, p.d, 2);
                if (tr.min)
                    memcpy(s + 32 + 2 * r, p.m, 2);
            }
        }
        if (tr.k) {
            uint8_t *d = tile + l->supers_at + b / 8 * 64;
            memcpy(d + 2 * r, p.d, 2);
            memcpy(d + 32 + 2 * r, p.m, 2);
        }
    }
}

static void pack_float_row(const vt_weight *w, const uint8_t *src, int r, uint8_t *tile)
{
    const uint16_t *half = (const uint16_t *)src;
    switch (w->dtype) {
    case VT_F32:
        for (int64_t k = 0; k < w->cols; k++)
            ((float *)tile)[LINEAR_TILE * k + r] = ((const float *)src)[k];
        break;
    case VT_F16:
        for (int64_t k = 0; k < w->cols; k++)
            ((uint16_t *)tile)[LINEAR_TILE * k + r] = half[k];
        break;
    default: /* VT_BF16, VT_FP8_E4M3 */
        for (int64_t k = 0; k < w->cols; k++)
            ((uint16_t *)tile)[2 * LINEAR_TILE * (k / 2) + 2 * r + k % 2] =
                w->dtype == VT_BF16 ? half[k] : vt_f32_to_bf16(vt_fp8_e4m3_to_f32(src[k]));
    }
}

linear_layout linear_layout_of(const vt_weight *w)
{
    linear_traits tr = linear_traits_of(w->dtype);
    int64_t tiles_of_half = vt_ceil_div(w->rows / 2, LINEAR_TILE);
    linear_layout l = {
        .n_tiles = w->paired ? 2 * tiles_of_half : vt_ceil_div(w->rows, LINEAR_TILE),
    };
    size_t bytes;
    if (tr.bits) {
        l.blocks = w->cols / LINEAR_BLOCK;
        l.scales_at = l.blocks * linear_quant_bytes(tr);
        l.supers_at = l.scales_at + l.blocks * linear_scale_bytes(tr);
        bytes = (size_t)(l.supers_at + (tr.k ? w->cols / LINEAR_SUPER * 64 : 0));
    } else {
        vt_dtype type = linear_packed_type(w);
        size_t cols = type == VT_BF16 ? vt_round_up((size_t)w->cols, 32) : (size_t)w->cols;
        bytes = cols * LINEAR_TILE * (size_t)vt_dtype_get(type)->bytes;
    }
    l.tile_bytes = (int64_t)vt_round_up(bytes, VT_CACHE_LINE);
    return l;
}

size_t linear_pack_bytes(const vt_weight *w)
{
    linear_layout l = linear_layout_of(w);
    return (size_t)(l.n_tiles * l.tile_bytes);
}

size_t linear_pack_unit(const vt_weight *w) { return (size_t)linear_layout_of(w).tile_bytes; }

int64_t linear_row_of(const vt_weight *w, int64_t tile, int r)
{
    if (!w->paired) {
        int64_t row = tile * LINEAR_TILE + r;
        return row < w->rows ? row : -1;
    }
    int64_t half = w->rows / 2, row = tile / 2 * LINEAR_TILE + r;
    return row < half ? row + tile % 2 * half : -1;
}

void linear_pack(const vt_weight *w, int64_t first, int64_t n, void *dst)
{
    linear_layout l = linear_layout_of(w);
    for (int64_t i = 0; i < n; i++) {
        uint8_t *tile = (uint8_t *)dst + i * l.tile_bytes;
        memset(tile, 0, (size_t)l.tile_bytes);
        for (int r = 0; r < LINEAR_TILE; r++) {
            int64_t row = linear_row_of(w, first + i, r);
            if (row < 0)
                continue;
            int32_t part = linear_part_of(w, &row);
            const uint8_t *src = linear_part_row(w->part[part], row);
            if (vt_dtype_quantised(w->dtype))
                pack_quantised_row(w, &l, src, r, tile);
            else
                pack_float_row(w, src, r, tile);
        }
    }
}

const vt_packing linear_tile_packing = {
    .name = "x86", .bytes = linear_pack_bytes, .unit = linear_pack_unit, .write = linear_pack};
