/* The int8 roof of CPUs with AVX-VNNI: two vpdpbusd of 256 bits a cycle on most cores. */
#include <immintrin.h>

#include "device/roofs/roofs.h"

enum { ACC = 12 };

static double int8_avxvnni(int64_t rounds)
{
    __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-5), acc[ACC];
    for (int i = 0; i < ACC; i++)
        acc[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < ACC; i++)
            acc[i] = _mm256_dpbusd_avx_epi32(acc[i], u, s);
    for (int i = 0; i < ACC; i++)
        __asm__ volatile("" : "+x"(acc[i]));
    return (double)rounds * ACC * 32 * 2;
}

const roofs_kernels roofs_avxvnni = {
    .int8 = int8_avxvnni,
    .int8_how = "avx2 vnni",
};
