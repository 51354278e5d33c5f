/* Roofs of the matrix unit (AMX): one instruction adds 64 int8 or 32 bf16 products to each of 16 x
 * 16 results. Four tiles of results are used in turn, so that an instruction need not wait for the
 * one before it. Reading and fp32 use the AVX-512 kernels.
 *
 * The tile configuration is loaded by inline assembly: GCC 12's _tile_loadconfig tells the compiler
 * that it reads 8 of the 64 bytes, and the stores to the others are dropped. */
#include <immintrin.h>

#include "device/roofs/roofs.h"

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void configure(void)
{
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

/* The tile intrinsics are volatile, so the loops below stay as they are. */
static double int8_amx(int64_t rounds)
{
    configure();
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return (double)rounds * 4 * 16 * 16 * 64 * 2;
}

static double bf16_amx(int64_t rounds)
{
    configure();
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return (double)rounds * 4 * 16 * 16 * 32 * 2;
}

const roofs_kernels roofs_amx = {
    .int8 = int8_amx,
    .bf16 = bf16_amx,
    .int8_how = "amx int8",
    .bf16_how = "amx bf16",
};
