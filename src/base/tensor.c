/* Element types and tensors: the table of types, sizes, and exact scalar conversions.
 *
 * Conversions work on bits, so they give the same answer on every machine and under every compiler
 * flag. They need not be fast: the vectorised code of ops/ is compared with them.
 *
 *   f32  s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm   bias 127
 *   bf16 s eeeeeeee mmmmmmm                   bias 127: the upper half of an f32
 *   f16  s eeeee mmmmmmmmmm                   bias 15
 *   e4m3 s eeee mmm                           bias 7, no infinity: s.1111.111 is NaN, largest 448
 */
#include "base/tensor.h"

#include <assert.h>
#include <string.h>

static const vt_dtype_info dtype_table[VT_DTYPE_COUNT] = {
#define VT_DTYPE(name, block, bytes, gguf, bits, ...) \
    [VT_##name] = {#name, block, bytes, gguf, bits},
#include "base/dtypes.h"
};

const vt_dtype_info *vt_dtype_get(vt_dtype t)
{
    assert((unsigned)t < VT_DTYPE_COUNT);
    return &dtype_table[t];
}

int64_t vt_dtype_row_bytes(vt_dtype t, int64_t n)
{
    const vt_dtype_info *info = vt_dtype_get(t);
    assert(n >= 0 && n % info->block == 0);
    return n / info->block * info->bytes;
}

int64_t vt_tensor_elems(const vt_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

int64_t vt_tensor_bytes(const vt_tensor *t)
{
    int64_t cols = t->rank ? t->dim[t->rank - 1] : 1; /* a scalar is one element */
    if (cols == 0)
        return 0;
    return vt_tensor_elems(t) / cols * vt_dtype_row_bytes(t->dtype, cols);
}

vt_tensor vt_tensor_2d(void *data, vt_dtype dtype, int64_t rows, int64_t cols)
{
    return (vt_tensor){
        .data = data, .dtype = dtype, .rank = 2, .dim = {rows, cols}, .row_stride = cols};
}

vt_tensor vt_tensor_matrix(const vt_tensor *t, int64_t i)
{
    int64_t bytes = t->dim[1] * vt_dtype_row_bytes(t->dtype, t->dim[2]);
    void *data = t->matrix ? t->matrix[i] : t->data ? (char *)t->data + i * bytes : NULL;
    return vt_tensor_2d(data, t->dtype, t->dim[1], t->dim[2]);
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* v >> shift, rounded to nearest, ties to even; 1 <= shift <= 31. */
static uint32_t shift_round(uint32_t v, int shift)
{
    uint32_t half = 1u << (shift - 1), rest = v & ((1u << shift) - 1), q = v >> shift;
    return q + (rest > half || (rest == half && (q & 1)));
}

float vt_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;
    if (exp == 31)
        return float_of(sign | 0x7f800000u | man << 13); /* infinity; NaN keeps its payload */
    if (exp == 0) {
        float f = (float)man * 0x1p-24f; /* zero and subnormals: exact */
        return sign ? -f : f;
    }
    return float_of(sign | (exp + 112) << 23 | man << 13);
}

uint16_t vt_f32_to_f16(float f)
{
    uint32_t u = bits_of(f), a = u & 0x7fffffffu;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff)); /* NaN, made quiet */
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
    /* 2^-14 and above: normal. If rounding carries, it increments the exponent, as it should. */
    if (a >= 0x38800000u)
        return (uint16_t)(sign | shift_round(a - (112u << 23), 13));
    if (a < 0x33000000u)
        return sign; /* below half of the smallest subnormal, 2^-25 */
    uint32_t man = (a & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round(man, 126 - (int)(a >> 23)));
}

uint16_t vt_f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40); /* NaN, made quiet */
    return (uint16_t)shift_round(u, 16);
}

float vt_fp8_e4m3_to_f32(uint8_t v)
{
    uint32_t sign = (uint32_t)(v & 0x80) << 24, exp = v >> 3 & 15, man = v & 7;
    if (exp == 15 && man == 7)
        return float_of(sign | 0x7fc00000u);
    if (exp == 0) {
        float f = (float)man * 0x1p-9f;
        return sign ? -f : f;
    }
    return float_of(sign | (exp + 120) << 23 | man << 20);
}

uint8_t vt_f32_to_fp8_e4m3(float f)
{
    uint32_t u = bits_of(f), a = u & 0x7fffffffu;
    uint8_t sign = (uint8_t)(u >> 24 & 0x80);
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7f);
    if (a >= 0x43e00000u)
        return (uint8_t)(sign | 0x7e); /* 448 and above */
    if (a >= 0x3c800000u)              /* 2^-6: normal */
        return (uint8_t)(sign | shift_round(a - (120u << 23), 20));
    if (a < 0x3a800000u)
        return sign; /* below 2^-10, half of the smallest subnormal */
    uint32_t man = (a & 0x7fffffu) | 0x800000u;
    return (uint8_t)(sign | shift_round(man, 141 - (int)(a >> 23)));
}
