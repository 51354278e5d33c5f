/* Roofs in AVX2: two loads and two FMAs a cycle on most cores. Twelve accumulators cover an FMA's
 * latency (4 to 5 cycles) on two ports and leave registers for the operands. */
#include <immintrin.h>

#include "device/roofs/roofs.h"

enum { ACC = 12 };

/* Keeps a value in a register and hides it from the optimiser. */
#define OPAQUE(v) __asm__ volatile("" : "+x"(v))

/* Reads as so many streams at once, with software prefetch `ahead` bytes before each, into L1 or
 * L2 (roofs_avx512.c). */
static inline __attribute__((always_inline)) uint64_t
read_streams(const void *p, size_t bytes, size_t streams, size_t ahead, bool into_l2)
{
    size_t part = bytes / streams / 64 * 64;
    __m256i a[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < part; at += 64)
        for (size_t s = 0; s < streams; s++) {
            const char *v = (const char *)p + s * part + at;
            if (ahead > 0 && into_l2)
                _mm_prefetch(v + ahead, _MM_HINT_T1);
            else if (ahead > 0)
                _mm_prefetch(v + ahead, _MM_HINT_T0);
            a[2 * s % 8] = _mm256_xor_si256(a[2 * s % 8], _mm256_load_si256((const void *)v));
            a[2 * s % 8 + 1] = _mm256_xor_si256(a[2 * s % 8 + 1],
                                                _mm256_load_si256((const void *)(v + 32)));
        }
    for (int i = 1; i < 8; i++)
        a[0] = _mm256_xor_si256(a[0], a[i]);
    return (uint64_t)_mm256_extract_epi64(a[0], 0);
}

static uint64_t read_4_near(const void *p, size_t n) { return read_streams(p, n, 4, 1024, false); }
static uint64_t read_4(const void *p, size_t n) { return read_streams(p, n, 4, 0, false); }
static uint64_t read_8(const void *p, size_t n) { return read_streams(p, n, 8, 0, false); }
static uint64_t read_1_far(const void *p, size_t n) { return read_streams(p, n, 1, 16384, true); }
static uint64_t read_2_far(const void *p, size_t n) { return read_streams(p, n, 2, 8192, true); }

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
    .read = {read_4_near, read_4, read_8, read_1_far, read_2_far},
    .fp32 = fp32_avx2,
    .int8 = int8_avx2,
    .fp32_how = "avx2 fma",
    .int8_how = "avx2 maddubs + madd",
};
