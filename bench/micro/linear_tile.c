/* make build/release/libvitrine_internal.a
 * gcc -O3 -std=gnu17 -D_GNU_SOURCE -ffp-contract=off -Iinclude -Isrc -mavx2 -mfma -mf16c -mbmi2 \
 *     -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512 \
 *     -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16 bench/micro/linear_tile.c \
 *     build/release/libvitrine_internal.a -ljansson -lm -ldl -lpthread -o build/bench_linear_tile
 * taskset -c 1 build/bench_linear_tile
 *
 * (AVX2: -DAVX2, and no option after -mbmi2 that begins with -mavx512 or -mamx. AVX-512: -DAVX512.)
 *
 * Cycles of the time stamp counter for the pieces of linear, all in cache, one thread, best of
 * many: a tile of 16 rows and one block of 32 columns. And what the matrix unit leaves to others.
 * */
#if defined(AVX2)
#include "ops/linear/cpu/linear_avx2.c"
#elif defined(AVX512)
#include "ops/linear/cpu/linear_avx512.c"
#else
#define TILES
#include "ops/linear/cpu/linear_amx.c"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

enum { REPEAT = 200, CALLS = 64 };

#define BEST(what, per, ...)                                                   \
    do {                                                                       \
        uint64_t best = UINT64_MAX;                                            \
        for (int r = 0; r < REPEAT; r++) {                                     \
            uint64_t begin = __rdtsc();                                        \
            for (int i = 0; i < CALLS; i++) {                                  \
                __VA_ARGS__;                                                   \
            }                                                                  \
            uint64_t t = __rdtsc() - begin;                                    \
            best = t < best ? t : best;                                        \
        }                                                                      \
        printf("  %-44s %8.1f\n", what, (double)best / CALLS / (double)(per)); \
    } while (0)

static void *zeros(size_t bytes)
{
    void *p = vt_aligned_alloc(4096, bytes);
    if (!p)
        exit(1);
    return memset(p, 0, bytes);
}

static void kernels(vt_dtype type, int64_t cols)
{
    vt_weight w = {.rows = 16, .cols = cols, .dtype = type};
    linear_layout l = linear_layout_of(&w);
    uint8_t *packed = zeros(1 << 20), *tile = zeros(1 << 20), *panel = zeros(1 << 20);
    tile_sums *sums = zeros(2 * sizeof *sums);
    float(*sum)[LINEAR_TILE] = sums[0], *x = zeros((size_t)cols * sizeof *x);
    for (int64_t k = 0; k < cols; k++)
        x[k] = (float)(k % 37) - 18;
    printf("%s, %d columns, cycles a block:\n", vt_dtype_get(type)->name, (int)cols);
    BEST("quantise one token", l.blocks, quantise(type, x, cols, PANEL, 3, panel));
    BEST("one token", l.blocks,
         dot_one(type, 1, &l, &(const uint8_t *){packed}, panel, &(float *){sum[0]}));
    BEST("unpack", l.blocks, unpack_blocks(type, false, &l, packed, 0, l.blocks, tile));
    block_run c = {.blocks = l.blocks, .tile = tile, .panel = panel, .apart = 1 << 16};
    for (c.tiles = 1; c.tiles <= TILES; c.tiles++)
        for (c.n = 1; c.n <= 16; c.n *= 2) {
            char what[64];
            snprintf(what, sizeof what, "%d tokens, unpacked, of %d tiles", c.n, c.tiles);
            BEST(what, l.blocks * c.tiles, dot_panel(type, &c, sums));
        }
    c.tiles = 1;
    c.n = 16;
    if (linear_traits_of(type).min)
        BEST("16 tokens, minima", l.blocks, min_panel(linear_traits_of(type).halves, &c, sum));
#ifdef TILES
    for (c.n = 8; c.n <= 16; c.n += 4) {
        char what[64];
        snprintf(what, sizeof what, "%d tokens, tiles", c.n);
        configure_quantised(c.n);
        BEST(what, l.blocks, amx_panel(type, c.n, &c, sums));
        tile_release();
    }
#endif
    free(packed), free(tile), free(panel), free(sums), free(x);
}

#ifdef TILES
/* Eight chains of eight. */
#define FMA_64                                                                               \
    UNROLL                                                                                   \
    for (int f = 0; f < 8; f++) {                                                            \
        UNROLL                                                                               \
        for (int n = 0; n < 8; n++)                                                          \
            acc[n] = vf_fma(acc[n], half, half);                                             \
    }                                                                                        \
    __asm__ volatile(""                                                                      \
                     : "+v"(acc[0]), "+v"(acc[1]), "+v"(acc[2]), "+v"(acc[3]), "+v"(acc[4]), \
                       "+v"(acc[5]), "+v"(acc[6]), "+v"(acc[7]))

static void matrix_unit(void)
{
    uint8_t *p = zeros(1 << 16);
    vf acc[8], half = vf_set1(0.5f);
    for (int j = 0; j < 8; j++)
        acc[j] = half;
    configure_quantised(16);
    TILE_LOAD(1, p, 32);
    TILE_LOAD(2, p, 64);
    printf("the matrix unit and 512-bit fp32, cycles:\n");
    BEST("multiply two tiles", 1, TILE_DOT_SU(0, 1, 2));
    BEST("load A and B, multiply, store C", 1, TILE_LOAD(1, p, 32); TILE_LOAD(2, p + 4096, 64);
         TILE_ZERO(0); TILE_DOT_SU(0, 1, 2); TILE_STORE(0, p + 8192, 64));
    BEST("64 fma", 1, FMA_64);
    BEST("64 fma and a tilezero", 1, TILE_ZERO(0); FMA_64);
    tile_release();

    float *x = zeros(1024 * sizeof *x);
    float_job j = {.l = &(linear_layout){.tile_bytes = 1 << 15}, .panel_bytes = 1 << 16};
    uint8_t *tile = zeros(1 << 17), *panel = zeros(1 << 18);
    tile_sums(*sum)[2] = zeros(2 * sizeof *sum);
    printf("BF16, 1024 columns, cycles for 2 tiles of rows and 32 columns:\n");
    BEST("split one token", 32, split(x, 1024, PANEL, 3, panel));
    configure_float(PANEL);
    BEST("32 tokens", 32, float_panels(&j, 2, 2, 32, tile, panel, sum));
    BEST("16 tokens", 32, float_panels(&j, 2, 1, 32, tile, panel, sum));
    tile_release();
    configure_float(1);
    BEST("one token", 32, float_panels(&j, 2, 0, 32, tile, panel, sum));
    tile_release();
    free(p), free(x), free(tile), free(panel), free(sum);
}
#endif

int main(void)
{
    vt_err err;
    if (vt_cpu_init(&err) != VT_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
#if defined(AVX2)
    const vt_isa least = VT_ISA_AVX2;
#elif defined(AVX512)
    const vt_isa least = VT_ISA_AVX512;
#else
    const vt_isa least = VT_ISA_AMX;
#endif
    if (vt_cpu_get()->best < least)
        return puts("this machine does not have the instruction set"), 1;
    kernels(VT_Q4_0, 1024);
    kernels(VT_Q4_1, 576);
    kernels(VT_Q4_1, 1536);
    kernels(VT_Q8_0, 576);
    kernels(VT_Q6_K, 512);
#ifdef TILES
    matrix_unit();
#endif
    return 0;
}
