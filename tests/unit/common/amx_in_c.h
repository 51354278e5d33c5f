/* The macros of ops/linear/cpu/amx_tile.h in plain C: eight tile registers a thread, and what the
 * instructions do to them, as Intel's manual says. A file that includes this header before
 * linear_amx.c has its kernels without AMX. A register that is not configured, or shapes that do
 * not fit, end the program, as the processor's fault would. */
#ifndef VT_OPS_LINEAR_AMX_TILE_H
#define VT_OPS_LINEAR_AMX_TILE_H

#include <stdio.h>
#include <stdlib.h>

#include "ops/linear/cpu/linear_vec.h"

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static _Thread_local struct {
    tile_config config; /* palette 0: released */
    _Alignas(64) uint8_t tile[8][16][64];
} unit_tiles;

static void tiles_expect(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "amx_in_c.h: %s\n", what);
    abort();
}

static void tile_configure(const tile_config *c)
{
    bool fits = c->palette == 1 && c->start_row == 0;
    for (int i = 0; i < 16; i++)
        fits &= i < 8 ? c->rows[i] <= 16 && c->row_bytes[i] <= 64 : !c->rows[i] && !c->row_bytes[i];
    tiles_expect(fits, "a configuration that palette 1 does not have");
    memset(&unit_tiles, 0, sizeof unit_tiles);
    unit_tiles.config = *c;
}

static void tile_release(void) { memset(&unit_tiles, 0, sizeof unit_tiles); }

static void tiles_used(int t)
{
    tiles_expect(unit_tiles.config.palette == 1 && unit_tiles.config.rows[t] &&
                     unit_tiles.config.row_bytes[t],
                 "a tile register that is not configured");
}

static void tiles_zero(int t)
{
    tiles_used(t);
    memset(unit_tiles.tile[t], 0, sizeof unit_tiles.tile[t]);
}

static void tiles_load(int t, const void *p, int64_t stride)
{
    tiles_zero(t); /* rows and bytes beyond the configured ones become zeros */
    for (int r = 0; r < unit_tiles.config.rows[t]; r++)
        memcpy(&unit_tiles.tile[t][r], (const uint8_t *)p + r * stride,
               unit_tiles.config.row_bytes[t]);
}

static void tiles_store(int t, void *p, int64_t stride)
{
    tiles_used(t);
    for (int r = 0; r < unit_tiles.config.rows[t]; r++)
        memcpy((uint8_t *)p + r * stride, &unit_tiles.tile[t][r], unit_tiles.config.row_bytes[t]);
}

/* Checks the shapes of c += a b: c [M][N], a [M][4 K bytes], b [K][N]. */
static void tiles_shapes(int c, int a, int b)
{
    const tile_config *t = &unit_tiles.config;
    tiles_used(c), tiles_used(a), tiles_used(b);
    tiles_expect(c != a && c != b && a != b, "a product of two tiles that are one");
    tiles_expect(t->rows[c] == t->rows[a] && t->row_bytes[c] == t->row_bytes[b] &&
                     t->row_bytes[a] == 4 * t->rows[b],
                 "tiles whose shapes do not fit");
}

/* Row r of tile t, and its k-th 32 bits in all lanes. */
static vi tiles_row(int t, int r) { return vi_load(unit_tiles.tile[t][r]); }
static vi tiles_spread(int t, int r, int k)
{
    return vi_set(load_i32(unit_tiles.tile[t][r] + 4 * k));
}

static void tiles_dot_su(int c, int a, int b)
{
    tiles_shapes(c, a, b);
    for (int m = 0; m < unit_tiles.config.rows[c]; m++) {
        vi sum = tiles_row(c, m);
        for (int k = 0; k < unit_tiles.config.rows[b]; k++)
            sum = _mm512_dpbusd_epi32(sum, tiles_row(b, k), tiles_spread(a, m, k));
        vi_store(unit_tiles.tile[c][m], sum);
    }
}

/* Signed b: with 128 added to it vpdpbusd has unsigned bytes, and the same of a is taken away. */
static void tiles_dot_ss(int c, int a, int b)
{
    const vi flip = vi_set8(-128);
    tiles_shapes(c, a, b);
    for (int m = 0; m < unit_tiles.config.rows[c]; m++) {
        vi sum = tiles_row(c, m), more = vi_set(0);
        for (int k = 0; k < unit_tiles.config.rows[b]; k++) {
            vi x = tiles_spread(a, m, k);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(tiles_row(b, k), flip), x);
            more = _mm512_dpbusd_epi32(more, flip, x);
        }
        vi_store(unit_tiles.tile[c][m], _mm512_sub_epi32(sum, more));
    }
}

/* The first or the second bf16 of each pair. */
static vf tiles_half(vi pairs, int half)
{
    return vf_bits(half ? vi_and(pairs, vi_set((int32_t)0xffff0000)) : VI_SLLI32(pairs, 16));
}

/* Two chains of fma, of the even and of the odd columns, whose sum is added to c. */
NOINLINE void tiles_sum_bf16(int c, int a, int b)
{
    for (int m = 0; m < unit_tiles.config.rows[c]; m++) {
        vf sum[2] = {vf_zero(), vf_zero()};
        for (int k = 0; k < unit_tiles.config.rows[b]; k++)
            for (int half = 0; half < 2; half++)
                sum[half] = vf_fma(tiles_half(tiles_spread(a, m, k), half),
                                   tiles_half(tiles_row(b, k), half), sum[half]);
        vi whole = vi_bits(vf_add(vf_bits(tiles_row(c, m)), vf_add(sum[0], sum[1])));
        vi_store(unit_tiles.tile[c][m], whole);
    }
}

/* A denormal operand counts as zero, and a denormal sum becomes zero. */
static void tiles_dot_bf16(int c, int a, int b)
{
    enum { FLUSH_TO_ZERO = 1 << 15, DENORMALS_ARE_ZEROS = 1 << 6 };
    const unsigned mode = _mm_getcsr();
    tiles_shapes(c, a, b);
    _mm_setcsr(mode | FLUSH_TO_ZERO | DENORMALS_ARE_ZEROS);
    tiles_sum_bf16(c, a, b);
    _mm_setcsr(mode);
}

#define TILE_ZERO(t) tiles_zero(t)
#define TILE_LOAD(t, p, stride) tiles_load(t, p, stride)
#define TILE_STORE(t, p, stride) tiles_store(t, p, stride)
#define TILE_DOT_SU(c, a, b) tiles_dot_su(c, a, b)
#define TILE_DOT_SS(c, a, b) tiles_dot_ss(c, a, b)
#define TILE_DOT_BF16(c, a, b) tiles_dot_bf16(c, a, b)

#endif
