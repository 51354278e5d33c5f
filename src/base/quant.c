/* Quantised types: one scalar function for each type and direction.
 *
 * A row is a sequence of blocks (bytes in the file, little endian, no padding):
 *
 *   Q8_0  d:f16 q:i8[32]                         x = d q
 *   Q4_0  d:f16 q:u4[32]                         x = d (q - 8)
 *   Q4_1  d:f16 m:f16 q:u4[32]                   x = d q + m
 *   Q5_0  d:f16 h:u1[32] q:u4[32]                x = d (q + 16 h - 16)
 *   Q5_1  d:f16 m:f16 h:u1[32] q:u4[32]          x = d (q + 16 h) + m
 *   Q4_K  d:f16 m:f16 s:u6[16] q:u4[256]         x = (d s_i) q - (m s'_i),  i: 8 groups of 32
 *   Q5_K  d:f16 m:f16 s:u6[16] h:u1[256] q:u4[256]
 *   Q6_K  q:u4[256] h:u2[256] s:i8[16] d:f16     x = (d s_i) (q + 16 h - 32),  i: 16 groups of 16
 *   Q3_K  h:u1[256] q:u2[256] s:u6[16] d:f16     x = (d (s_i - 32)) (q + 4 h - 4),  i: as Q6_K
 *   Q2_K  s:u4[16] s':u4[16] q:u2[256] d:f16 m:f16   x = (d s_i) q - (m s'_i),  i: as Q6_K
 *   IQ4_NL  d:f16 q:u4[32]                       x = d vt_iq4_nl[q]
 *   IQ4_XS  d:f16 h:u2[8] s:u4[8] q:u4[256]      x = (d (s_i + 16 h_i - 32)) vt_iq4_nl[q]
 *   MXFP4   e:u8 q:u4[32]                        x = 2^(e - 128) vt_mxfp4[q]
 *
 * In the types with blocks of 32, byte j of q holds element j in its low and element j + 16 in its
 * high nibble. In Q4_K and Q5_K each 32 bytes of q hold two groups, low nibbles first; byte j of
 * Q5_K's h holds element j of all 8 groups, group i in bit i. Q6_K repeats one pattern for each
 * half of 128 elements (see dequant_q6_k). Products are formed in fp32 in the order written above,
 * which is what the other implementations of this format do: dequantised values agree bit for bit.
 */
#include "base/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { QK = 32, QK_K = 256 };

static float load_f16(const uint8_t *p) { return vt_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* Stores v as f16 and returns what was stored. */
static float store_f16(uint8_t *p, float v)
{
    uint16_t h = vt_f32_to_f16(v);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
    return vt_f16_to_f32(h);
}

static uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* ---- blocks of 32 ---- */

static void dequant_q8_0(const uint8_t *b, float *x)
{
    float d = load_f16(b);
    for (int j = 0; j < QK; j++)
        x[j] = d * (float)(int8_t)b[2 + j];
}

static void dequant_q4_0(const uint8_t *b, float *x)
{
    float d = load_f16(b);
    for (int j = 0; j < QK / 2; j++) {
        x[j] = d * (float)((b[2 + j] & 15) - 8);
        x[j + QK / 2] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

static void dequant_q4_1(const uint8_t *b, float *x)
{
    float d = load_f16(b), m = load_f16(b + 2);
    for (int j = 0; j < QK / 2; j++) {
        x[j] = d * (float)(b[4 + j] & 15) + m;
        x[j + QK / 2] = d * (float)(b[4 + j] >> 4) + m;
    }
}

static void dequant_q5_0(const uint8_t *b, float *x)
{
    float d = load_f16(b);
    uint32_t h = load_u32(b + 2);
    for (int j = 0; j < QK / 2; j++) {
        x[j] = d * (float)((b[6 + j] & 15) + (int)(h >> j & 1) * 16 - 16);
        x[j + QK / 2] = d * (float)((b[6 + j] >> 4) + (int)(h >> (j + 16) & 1) * 16 - 16);
    }
}

static void dequant_q5_1(const uint8_t *b, float *x)
{
    float d = load_f16(b), m = load_f16(b + 2);
    uint32_t h = load_u32(b + 4);
    for (int j = 0; j < QK / 2; j++) {
        x[j] = d * (float)((b[8 + j] & 15) + (int)(h >> j & 1) * 16) + m;
        x[j + QK / 2] = d * (float)((b[8 + j] >> 4) + (int)(h >> (j + 16) & 1) * 16) + m;
    }
}

/* The value of largest magnitude, with its sign. */
static float peak_of(const float *x, int n)
{
    float peak = 0;
    for (int j = 0; j < n; j++)
        if (fabsf(x[j]) > fabsf(peak))
            peak = x[j];
    return peak;
}

static void range_of(const float *x, int n, float *lo, float *hi)
{
    *lo = *hi = x[0];
    for (int j = 1; j < n; j++) {
        *lo = fminf(*lo, x[j]);
        *hi = fmaxf(*hi, x[j]);
    }
}

/* x / d rounded to the nearest integer in [lo, hi]; 0 where d is 0, since the whole block is 0
 * then. */
static int level(float x, float d, int lo, int hi)
{
    if (d == 0)
        return 0;
    float q = roundf(x / d);
    return q < (float)lo ? lo : q > (float)hi ? hi : (int)q;
}

static void quant_q8_0(const float *x, uint8_t *b)
{
    float d = store_f16(b, fabsf(peak_of(x, QK)) / 127);
    for (int j = 0; j < QK; j++)
        b[2 + j] = (uint8_t)(int8_t)level(x[j], d, -127, 127);
}

/* Q4_0 and Q5_0: levels run from -n to n - 1, so the value of largest magnitude gets level -n.
 * Levels go to u[0..32). */
static void levels_symmetric(const float *x, uint8_t *d_out, int half, int *u)
{
    float d = store_f16(d_out, peak_of(x, QK) / (float)-half);
    for (int j = 0; j < QK; j++)
        u[j] = level(x[j], d, -half, half - 1) + half;
}

/* Q4_1 and Q5_1: `top` + 1 levels from the minimum to the maximum. */
static void levels_affine(const float *x, uint8_t *d_out, int top, int *u)
{
    float lo, hi;
    range_of(x, QK, &lo, &hi);
    float d = store_f16(d_out, (hi - lo) / (float)top), m = store_f16(d_out + 2, lo);
    for (int j = 0; j < QK; j++)
        u[j] = level(x[j] - m, d, 0, top);
}

static void pack_nibbles(const int *u, uint8_t *q)
{
    for (int j = 0; j < QK / 2; j++)
        q[j] = (uint8_t)((u[j] & 15) | (u[j + QK / 2] & 15) << 4);
}

static uint32_t fifth_bits(const int *u)
{
    uint32_t h = 0;
    for (int j = 0; j < QK; j++)
        h |= (uint32_t)(u[j] >> 4 & 1) << j;
    return h;
}

static void quant_q4_0(const float *x, uint8_t *b)
{
    int u[QK];
    levels_symmetric(x, b, 8, u);
    pack_nibbles(u, b + 2);
}

static void quant_q4_1(const float *x, uint8_t *b)
{
    int u[QK];
    levels_affine(x, b, 15, u);
    pack_nibbles(u, b + 4);
}

static void quant_q5_0(const float *x, uint8_t *b)
{
    int u[QK];
    levels_symmetric(x, b, 16, u);
    store_u32(b + 2, fifth_bits(u));
    pack_nibbles(u, b + 6);
}

static void quant_q5_1(const float *x, uint8_t *b)
{
    int u[QK];
    levels_affine(x, b, 31, u);
    store_u32(b + 4, fifth_bits(u));
    pack_nibbles(u, b + 8);
}

/* ---- blocks of 256 ---- */

/* The 12 bytes of 6-bit scales s and minima m of Q4_K and Q5_K. Groups 0..3: the low 6 bits of
 * bytes 0..3 (s) and 4..7 (m). Groups 4..7: low and high nibbles of bytes 8..11, topped by the two
 * high bits of bytes 0..3 and 4..7. */
static void unpack_scales(const uint8_t *p, uint8_t *s /* [8] */, uint8_t *m /* [8] */)
{
    for (int i = 0; i < 4; i++) {
        s[i] = p[i] & 63;
        m[i] = p[4 + i] & 63;
        s[4 + i] = (uint8_t)((p[8 + i] & 15) | p[i] >> 6 << 4);
        m[4 + i] = (uint8_t)(p[8 + i] >> 4 | p[4 + i] >> 6 << 4);
    }
}

static void pack_scales(const uint8_t *s, const uint8_t *m, uint8_t *p)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(s[i] | s[4 + i] >> 4 << 6);
        p[4 + i] = (uint8_t)(m[i] | m[4 + i] >> 4 << 6);
        p[8 + i] = (uint8_t)((s[4 + i] & 15) | (m[4 + i] & 15) << 4);
    }
}

static void dequant_q4_k(const uint8_t *b, float *x)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    uint8_t s[8], m[8];
    unpack_scales(b + 4, s, m);
    for (int i = 0; i < 8; i++) {
        const uint8_t *q = b + 16 + i / 2 * 32;
        float scale = d * (float)s[i], min = dmin * (float)m[i];
        for (int j = 0; j < 32; j++)
            x[i * 32 + j] = scale * (float)(i & 1 ? q[j] >> 4 : q[j] & 15) - min;
    }
}

static void dequant_q5_k(const uint8_t *b, float *x)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    uint8_t s[8], m[8];
    unpack_scales(b + 4, s, m);
    const uint8_t *h = b + 16;
    for (int i = 0; i < 8; i++) {
        const uint8_t *q = b + 48 + i / 2 * 32;
        float scale = d * (float)s[i], min = dmin * (float)m[i];
        for (int j = 0; j < 32; j++) {
            int low = i & 1 ? q[j] >> 4 : q[j] & 15;
            x[i * 32 + j] = scale * (float)(low + (h[j] >> i & 1) * 16) - min;
        }
    }
}

/* Half n (128 elements) consists of four runs k of 32 elements. In its 64 bytes of q, the low bits
 * of run k are in the 32 bytes from (k & 1) * 32 on: in the low nibbles for k < 2, in the high ones
 * for k >= 2. In its 32 bytes of h, run k is in bits 2k and 2k + 1. A scale covers 16 elements. */
static void dequant_q6_k(const uint8_t *b, float *x)
{
    const uint8_t *h = b + 128;
    const int8_t *s = (const int8_t *)(b + 192);
    float d = load_f16(b + 208);
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 32; j++) {
                uint8_t byte = b[n * 64 + (k & 1) * 32 + j];
                int low = k < 2 ? byte & 15 : byte >> 4;
                int q = low + (h[n * 32 + j] >> (2 * k) & 3) * 16 - 32;
                x[n * 128 + k * 32 + j] = d * (float)s[n * 8 + k * 2 + j / 16] * (float)q;
            }
}

/* The 16 scales of 6 bits in a Q3_K block's 12 bytes, less their offset: the low four bits in the
 * nibbles of the first eight bytes, the high two in the last four, four to a byte. */
void vt_q3_k_scales(const uint8_t *b, int8_t s[16])
{
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? b[i] & 15 : b[i - 8] >> 4, high = b[8 + i % 4] >> (i / 4 * 2) & 3;
        s[i] = (int8_t)((low | high << 4) - 32);
    }
}

int vt_k_two_bits(const uint8_t *q, int e)
{
    return q[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3;
}

int vt_q3_k_quant(const uint8_t *b, int e)
{
    return vt_k_two_bits(b + 32, e) + (b[e % 32] >> (e / 32) & 1) * 4 - 4;
}

static void dequant_q3_k(const uint8_t *b, float *x)
{
    int8_t s[16];
    float d = load_f16(b + 108);
    vt_q3_k_scales(b + 96, s);
    for (int e = 0; e < QK_K; e++)
        x[e] = d * (float)s[e / 16] * (float)vt_q3_k_quant(b, e);
}

/* A byte of scales holds the scale of 16 elements in its low nibble and their minimum in the high
 * one. */
static void dequant_q2_k(const uint8_t *b, float *x)
{
    float d = load_f16(b + 80), dmin = load_f16(b + 82);
    for (int e = 0; e < QK_K; e++) {
        uint8_t s = b[e / 16];
        x[e] = d * (float)(s & 15) * (float)vt_k_two_bits(b + 16, e) - dmin * (float)(s >> 4);
    }
}

/* The scale and the minimum with which levels 0 .. top cover a group of n elements. */
static void group_range(const float *x, int n, int top, float *scale, float *min)
{
    float lo, hi;
    range_of(x, n, &lo, &hi);
    lo = fminf(lo, 0); /* a minimum is subtracted and unsigned, so it cannot lie above zero */
    hi = fmaxf(hi, lo);
    *scale = (hi - lo) / (float)top;
    *min = -lo;
}

/* Group scales and minima of a Q4_K or Q5_K block, and the level of each element: 0 .. top. */
static void levels_k(const float *x, uint8_t *b, int top, uint8_t *u /* [256] */)
{
    float scale[8], min[8], scale_max = 0, min_max = 0;
    for (int i = 0; i < 8; i++) {
        group_range(x + i * 32, 32, top, &scale[i], &min[i]);
        scale_max = fmaxf(scale_max, scale[i]);
        min_max = fmaxf(min_max, min[i]);
    }
    float d = store_f16(b, scale_max / 63), dmin = store_f16(b + 2, min_max / 63);
    uint8_t s[8], m[8];
    for (int i = 0; i < 8; i++) {
        s[i] = (uint8_t)level(scale[i], d, 0, 63);
        m[i] = (uint8_t)level(min[i], dmin, 0, 63);
        float group_d = d * (float)s[i], group_min = dmin * (float)m[i];
        for (int j = 0; j < 32; j++)
            u[i * 32 + j] = (uint8_t)level(x[i * 32 + j] + group_min, group_d, 0, top);
    }
    pack_scales(s, m, b + 4);
}

static void pack_nibbles_k(const uint8_t *u, uint8_t *q)
{
    for (int i = 0; i < 8; i += 2)
        for (int j = 0; j < 32; j++)
            q[i / 2 * 32 + j] = (uint8_t)((u[i * 32 + j] & 15) | (u[(i + 1) * 32 + j] & 15) << 4);
}

static void quant_q4_k(const float *x, uint8_t *b)
{
    uint8_t u[QK_K];
    levels_k(x, b, 15, u);
    pack_nibbles_k(u, b + 16);
}

static void quant_q5_k(const float *x, uint8_t *b)
{
    uint8_t u[QK_K];
    levels_k(x, b, 31, u);
    for (int j = 0; j < 32; j++) {
        int h = 0;
        for (int i = 0; i < 8; i++)
            h |= (u[i * 32 + j] >> 4 & 1) << i;
        b[16 + j] = (uint8_t)h;
    }
    pack_nibbles_k(u, b + 48);
}

static void quant_q6_k(const float *x, uint8_t *b)
{
    float scale[16], scale_peak;
    for (int i = 0; i < 16; i++)
        scale[i] = peak_of(x + i * 16, 16) / -32;
    scale_peak = peak_of(scale, 16);
    float d = store_f16(b + 208, scale_peak / -128);
    memset(b, 0, 192);
    for (int e = 0; e < QK_K; e++) {
        int s = level(scale[e / 16], d, -128, 127);
        int u = level(x[e], d * (float)s, -32, 31) + 32;
        int n = e / 128, k = e / 32 % 4, j = e % 32;
        b[192 + e / 16] = (uint8_t)(int8_t)s;
        b[n * 64 + (k & 1) * 32 + j] |= (uint8_t)((u & 15) << (k < 2 ? 0 : 4));
        b[128 + n * 32 + j] |= (uint8_t)(u >> 4 << (2 * k));
    }
}

static void quant_q3_k(const float *x, uint8_t *b)
{
    float scale[16];
    for (int i = 0; i < 16; i++)
        scale[i] = peak_of(x + i * 16, 16) / -4;
    float d = store_f16(b + 108, peak_of(scale, 16) / -32);
    memset(b, 0, 108);
    for (int e = 0; e < QK_K; e++) {
        int i = e / 16, n = e / 128, k = e / 32 % 4, j = e % 32;
        int s = level(scale[i], d, -32, 31), u = level(x[e], d * (float)s, -4, 3) + 4;
        b[32 + n * 32 + j] |= (uint8_t)((u & 3) << (2 * k));
        b[j] |= (uint8_t)(u >> 2 << (4 * n + k));
        if (e % 16 == 0) {
            b[96 + i % 8] |= (uint8_t)(((s + 32) & 15) << (i < 8 ? 0 : 4));
            b[104 + i % 4] |= (uint8_t)((s + 32) >> 4 << (i / 4 * 2));
        }
    }
}

static void quant_q2_k(const float *x, uint8_t *b)
{
    float scale[16], min[16];
    for (int i = 0; i < 16; i++)
        group_range(x + i * 16, 16, 3, &scale[i], &min[i]);
    float d = store_f16(b + 80, peak_of(scale, 16) / 15),
          dmin = store_f16(b + 82, peak_of(min, 16) / 15);
    memset(b, 0, 80);
    for (int e = 0; e < QK_K; e++) {
        int i = e / 16, s = level(scale[i], d, 0, 15), m = level(min[i], dmin, 0, 15);
        int u = level(x[e] + dmin * (float)m, d * (float)s, 0, 3);
        b[i] = (uint8_t)(s | m << 4);
        b[16 + e / 128 * 32 + e % 32] |= (uint8_t)(u << (e / 32 % 4 * 2));
    }
}

/* ---- tables of values ---- */

const int8_t vt_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
const int8_t vt_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t vt_mxfp4_scale(uint8_t e)
{
    return (uint16_t)(e < 2 ? 0x20 << e : (e - 1) << 7); /* the first two are subnormal */
}

static void dequant_table(const uint8_t *q, const int8_t *table, float d, float *x)
{
    for (int j = 0; j < QK / 2; j++) {
        x[j] = d * (float)table[q[j] & 15];
        x[j + QK / 2] = d * (float)table[q[j] >> 4];
    }
}

static void dequant_iq4_nl(const uint8_t *b, float *x)
{
    dequant_table(b + 2, vt_iq4_nl, load_f16(b), x);
}

/* The scale of group i (-32 .. 31): two bits of a 16-bit word over a nibble. */
int vt_iq4_xs_scale(const uint8_t *b, int i)
{
    int low = b[4 + i / 2] >> (i % 2 * 4) & 15, high = b[2 + i / 4] >> (i % 4 * 2) & 3;
    return (low | high << 4) - 32;
}

static void dequant_iq4_xs(const uint8_t *b, float *x)
{
    float d = load_f16(b);
    for (int i = 0; i < QK_K / QK; i++)
        dequant_table(b + 8 + i * QK / 2, vt_iq4_nl, d * (float)vt_iq4_xs_scale(b, i), x + i * QK);
}

static void dequant_mxfp4(const uint8_t *b, float *x)
{
    dequant_table(b + 1, vt_mxfp4, vt_bf16_to_f32(vt_mxfp4_scale(b[0])), x);
}

/* Writes the place of the value that is nearest to x / d, for each x. */
static void quant_table(const float *x, const int8_t *table, float d, uint8_t *q)
{
    memset(q, 0, QK / 2);
    for (int j = 0; j < QK; j++) {
        float v = d != 0 ? x[j] / d : 0;
        int best = 0;
        for (int i = 1; i < 16; i++)
            if (fabsf(v - (float)table[i]) < fabsf(v - (float)table[best]))
                best = i;
        q[j % (QK / 2)] |= (uint8_t)(best << (j < QK / 2 ? 0 : 4));
    }
}

static void quant_iq4_nl(const float *x, uint8_t *b)
{
    quant_table(x, vt_iq4_nl, store_f16(b, peak_of(x, QK) / -127), b + 2);
}

static void quant_iq4_xs(const float *x, uint8_t *b)
{
    enum { GROUPS = QK_K / QK };
    float scale[GROUPS];
    for (int i = 0; i < GROUPS; i++)
        scale[i] = peak_of(x + i * QK, QK) / -127;
    float d = store_f16(b, peak_of(scale, GROUPS) / -32);
    memset(b + 2, 0, 6);
    for (int i = 0; i < GROUPS; i++) {
        int s = level(scale[i], d, -32, 31);
        b[4 + i / 2] |= (uint8_t)(((s + 32) & 15) << (i % 2 * 4));
        b[2 + i / 4] |= (uint8_t)((s + 32) >> 4 << (i % 4 * 2));
        quant_table(x + i * QK, vt_iq4_nl, d * (float)s, b + 8 + i * QK / 2);
    }
}

static void quant_mxfp4(const float *x, uint8_t *b)
{
    float peak = fabsf(peak_of(x, QK));
    int e = peak > 0 ? ilogbf(peak) + 125 : 0; /* the peak becomes 8 to 12 of the scale's units */
    b[0] = (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
    quant_table(x, vt_mxfp4, vt_bf16_to_f32(vt_mxfp4_scale(b[0])), b + 1);
}

/* ---- rows ---- */

typedef void (*dequant_fn)(const uint8_t *block, float *x);
typedef void (*quant_fn)(const float *x, uint8_t *block);

static const struct {
    dequant_fn dequant;
    quant_fn quant;
} block_fn[VT_DTYPE_COUNT] = {
    [VT_Q8_0] = {dequant_q8_0, quant_q8_0},       [VT_Q4_0] = {dequant_q4_0, quant_q4_0},
    [VT_Q4_1] = {dequant_q4_1, quant_q4_1},       [VT_Q5_0] = {dequant_q5_0, quant_q5_0},
    [VT_Q5_1] = {dequant_q5_1, quant_q5_1},       [VT_Q4_K] = {dequant_q4_k, quant_q4_k},
    [VT_Q5_K] = {dequant_q5_k, quant_q5_k},       [VT_Q6_K] = {dequant_q6_k, quant_q6_k},
    [VT_Q3_K] = {dequant_q3_k, quant_q3_k},       [VT_Q2_K] = {dequant_q2_k, quant_q2_k},
    [VT_IQ4_NL] = {dequant_iq4_nl, quant_iq4_nl}, [VT_IQ4_XS] = {dequant_iq4_xs, quant_iq4_xs},
    [VT_MXFP4] = {dequant_mxfp4, quant_mxfp4},
};

void vt_dequant_row(vt_dtype type, const void *src, float *dst, int64_t n)
{
    switch (type) {
    case VT_F32:
        memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    case VT_F16:
        for (int64_t i = 0; i < n; i++)
            dst[i] = vt_f16_to_f32(((const uint16_t *)src)[i]);
        return;
    case VT_BF16:
        for (int64_t i = 0; i < n; i++)
            dst[i] = vt_bf16_to_f32(((const uint16_t *)src)[i]);
        return;
    case VT_FP8_E4M3:
        for (int64_t i = 0; i < n; i++)
            dst[i] = vt_fp8_e4m3_to_f32(((const uint8_t *)src)[i]);
        return;
    default:
        break;
    }
    assert(vt_dtype_quantised(type));
    const vt_dtype_info *info = vt_dtype_get(type);
    assert(n % info->block == 0);
    for (int64_t i = 0; i < n / info->block; i++)
        block_fn[type].dequant((const uint8_t *)src + i * info->bytes, dst + i * info->block);
}

void vt_quant_row(vt_dtype type, const float *src, void *dst, int64_t n)
{
    switch (type) {
    case VT_F32:
        memcpy(dst, src, (size_t)n * sizeof *src);
        return;
    case VT_F16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = vt_f32_to_f16(src[i]);
        return;
    case VT_BF16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = vt_f32_to_bf16(src[i]);
        return;
    case VT_FP8_E4M3:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = vt_f32_to_fp8_e4m3(src[i]);
        return;
    default:
        break;
    }
    assert(vt_dtype_quantised(type));
    const vt_dtype_info *info = vt_dtype_get(type);
    assert(n % info->block == 0);
    for (int64_t i = 0; i < n / info->block; i++)
        block_fn[type].quant(src + i * info->block, (uint8_t *)dst + i * info->bytes);
}
