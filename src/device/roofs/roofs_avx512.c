/* Roofs in AVX-512: FMA, and VNNI with its four products per lane. Sixteen accumulators keep two
 * ports busy. */
#include <immintrin.h>

#include "device/roofs/roofs.h"

enum { ACC = 16 };

#define OPAQUE(v) __asm__ volatile("" : "+v"(v))

/* Reads as so many streams at once, with software prefetch `ahead` bytes before each, into L1 or
 * L2. All three are constants; 0 bytes ahead leaves prefetching to the hardware. */
static inline __attribute__((always_inline)) uint64_t
read_streams(const void *p, size_t bytes, size_t streams, size_t ahead, bool into_l2)
{
    size_t part = bytes / streams / 128 * 128;
    __m512i a[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_setzero_si512();
    for (size_t at = 0; at < part; at += 128)
        for (size_t s = 0; s < streams; s++) {
            const char *v = (const char *)p + s * part + at;
            for (size_t line = 0; ahead > 0 && line < 128; line += 64) {
                if (into_l2)
                    _mm_prefetch(v + ahead + line, _MM_HINT_T1);
                else
                    _mm_prefetch(v + ahead + line, _MM_HINT_T0);
            }
            a[2 * s % 8] = _mm512_xor_si512(a[2 * s % 8], _mm512_load_si512(v));
            a[2 * s % 8 + 1] = _mm512_xor_si512(a[2 * s % 8 + 1], _mm512_load_si512(v + 64));
        }
    for (int i = 1; i < 8; i++)
        a[0] = _mm512_xor_si512(a[0], a[i]);
    return (uint64_t)_mm512_reduce_add_epi64(a[0]);
}

static uint64_t read_4_near(const void *p, size_t n) { return read_streams(p, n, 4, 1024, false); }
static uint64_t read_4(const void *p, size_t n) { return read_streams(p, n, 4, 0, false); }
static uint64_t read_8(const void *p, size_t n) { return read_streams(p, n, 8, 0, false); }
static uint64_t read_1_far(const void *p, size_t n) { return read_streams(p, n, 1, 16384, true); }
static uint64_t read_2_far(const void *p, size_t n) { return read_streams(p, n, 2, 8192, true); }

static double fp32_avx512(int64_t rounds)
{
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f), acc[ACC];
    for (int i = 0; i < ACC; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < ACC; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], x, y);
    for (int i = 0; i < ACC; i++)
        OPAQUE(acc[i]);
    return (double)rounds * ACC * 16 * 2;
}

static double int8_avx512(int64_t rounds)
{
    __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-5), acc[ACC];
    for (int i = 0; i < ACC; i++)
        acc[i] = _mm512_setzero_si512();
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < ACC; i++)
            acc[i] = _mm512_dpbusd_epi32(acc[i], u, s);
    for (int i = 0; i < ACC; i++)
        OPAQUE(acc[i]);
    return (double)rounds * ACC * 64 * 2;
}

const roofs_kernels roofs_avx512 = {
    .read = {read_4_near, read_4, read_8, read_1_far, read_2_far},
    .fp32 = fp32_avx512,
    .int8 = int8_avx512,
    .fp32_how = "avx512 fma",
    .int8_how = "avx512 vnni",
};
