/* Roofs in AVX2: two loads and two FMAs a cycle on most cores. Twelve accumulators cover an FMA's
 * latency (4 to 5 cycles) on two ports and leave registers for the operands. */
#include <immintrin.h>

#include "device/roofs.h"

enum { ACC = 12 };

/* Keeps a value in a register and hides it from the optimiser. */
#define OPAQUE(v) __asm__ volatile("" : "+x"(v))

/* Four streams per thread, each prefetched 1 KiB ahead (see roofs_avx512.c for what that gains). */
static uint64_t read_avx2(const void *p, size_t bytes)
{
    size_t quarter = bytes / 4 / 64 * 64;
    __m256i a[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < quarter; at += 64)
        for (size_t s = 0; s < 4; s++) {
            const __m256i *v = (const __m256i *)((const char *)p + s * quarter + at);
            _mm_prefetch((const char *)v + 1024, _MM_HINT_T0);
            a[2 * s] = _mm256_xor_si256(a[2 * s], _mm256_load_si256(v));
            a[2 * s + 1] = _mm256_xor_si256(a[2 * s + 1], _mm256_load_si256(v + 1));
        }
    for (int i = 1; i < 8; i++)
        a[0] = _mm256_xor_si256(a[0], a[i]);
    return (uint64_t)_mm256_extract_epi64(a[0], 0);
}

static double fp32_avx2(int64_t rounds)
{
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f), acc[ACC];
    for (int i = 0; i < ACC; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < ACC; i++)
            acc[i] = _mm256_fmadd_ps(acc[i], x, y);
    for (int i = 0; i < ACC; i++)
        OPAQUE(acc[i]);
    return (double)rounds * ACC * 8 * 2;
}

/* Multiplies u8 by s8 and adds pairs to s16, adds pairs of those to s32, and adds these to the
 * sums: three instructions for 32 products. */
static double int8_avx2(int64_t rounds)
{
    __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1),
            acc[ACC];
    for (int i = 0; i < ACC; i++)
        acc[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < ACC; i++) {
            OPAQUE(u);
            __m256i pair = _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), ones);
            acc[i] = _mm256_add_epi32(acc[i], pair);
        }
    for (int i = 0; i < ACC; i++)
        OPAQUE(acc[i]);
    return (double)rounds * ACC * 32 * 2;
}

const roofs_kernels roofs_avx2 = {
    .read = read_avx2,
    .fp32 = fp32_avx2,
    .int8 = int8_avx2,
    .fp32_how = "avx2 fma",
    .int8_how = "avx2 maddubs + madd",
};
