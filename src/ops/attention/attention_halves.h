/* Vectors of 16-bit elements, two a lane, held in the vector type of floats; comes after one of the
 * simd_<isa>.h headers.
 *
 *   vf_pair(a, b, half)       lane i: the low (half 0) or high 16 bits of lane i of a, and above
 *                             them the same of b
 *   vf_halves_e4m3(p, &most)  HALVES e4m3 values times 2^-8 as f16. A NaN becomes 480 times 2^-8;
 *                             `most`, which begins at 0, keeps the largest sizes for vf_met_nan
 *
 * An e4m3 is an f16 with a different exponent bias: its bits are moved to their places, and the
 * exponent is 8 too low. */
#ifndef VT_OPS_ATTENTION_HALVES_H
#define VT_OPS_ATTENTION_HALVES_H

enum { HALVES = 2 * VF }; /* 16-bit elements of a vector */

#ifdef __AVX512BW__
static inline vf vf_pair(vf a, vf b, int half)
{
    __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
    return _mm512_castsi512_ps(
        half ? _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(x, 16), y)
             : _mm512_mask_blend_epi16(0xaaaaaaaa, x, _mm512_slli_epi32(y, 16)));
}
static inline vf vf_halves_e4m3(const uint8_t *p, vf *most)
{
    __m256i b = _mm256_loadu_si256((const __m256i *)p),
            m = _mm512_castsi512_si256(_mm512_castps_si512(*most));
    m = _mm256_max_epu8(m, _mm256_and_si256(b, _mm256_set1_epi8(0x7f)));
    *most = _mm512_castsi512_ps(_mm512_castsi256_si512(m));
    __m512i h = _mm512_slli_epi16(_mm512_cvtepi8_epi16(b), 7);
    return _mm512_castsi512_ps(_mm512_and_si512(h, _mm512_set1_epi16((short)0xbfff)));
}
static inline bool vf_met_nan(vf most)
{
    __m256i m = _mm512_castsi512_si256(_mm512_castps_si512(most));
    return _mm256_cmpeq_epi8_mask(m, _mm256_set1_epi8(0x7f)) != 0;
}
#elif defined __AVX2__
static inline vf vf_pair(vf a, vf b, int half)
{
    __m256i x = _mm256_castps_si256(a), y = _mm256_castps_si256(b);
    return _mm256_castsi256_ps(half ? _mm256_blend_epi16(_mm256_srli_epi32(x, 16), y, 0xaa)
                                    : _mm256_blend_epi16(x, _mm256_slli_epi32(y, 16), 0xaa));
}
static inline vf vf_halves_e4m3(const uint8_t *p, vf *most)
{
    __m128i b = _mm_loadu_si128((const __m128i *)p),
            m = _mm256_castsi256_si128(_mm256_castps_si256(*most));
    m = _mm_max_epu8(m, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
    *most = _mm256_castsi256_ps(_mm256_castsi128_si256(m));
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);
    return _mm256_castsi256_ps(_mm256_and_si256(h, _mm256_set1_epi16((short)0xbfff)));
}
static inline bool vf_met_nan(vf most)
{
    __m128i m = _mm256_castsi256_si128(_mm256_castps_si256(most));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(m, _mm_set1_epi8(0x7f))) != 0;
}
#else
typedef uint32_t vf_words __attribute__((vector_size(4 * VF)));
typedef uint16_t vf_u16 __attribute__((vector_size(4 * VF)));
typedef uint8_t vf_u8 __attribute__((vector_size(2 * VF)));

static inline vf vf_pair(vf a, vf b, int half)
{
    vf_words x = (vf_words)a, y = (vf_words)b;
    return half ? (vf)(x >> 16 | (y & 0xffff0000u)) : (vf)((x & 0xffffu) | y << 16);
}
static inline vf vf_halves_e4m3(const uint8_t *p, vf *most)
{
    vf_u8 b;
    memcpy(&b, p, sizeof b);
    vf_u16 h = __builtin_convertvector(b, vf_u16), size = h & 0x7f, m = (vf_u16)*most;
    vf_u16 more = (vf_u16)(size > m);
    *most = (vf)((size & more) | (m & ~more));
    return (vf)(size << 7 | (h & 0x80) << 8);
}
static inline bool vf_met_nan(vf most)
{
    uint16_t m[HALVES];
    bool nan = false;
    memcpy(m, &most, sizeof m);
    for (int i = 0; i < HALVES; i++)
        nan = nan || m[i] == 0x7f;
    return nan;
}
#endif

#endif
