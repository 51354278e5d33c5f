/* Packed 4-bit codes as blocks of Q4_0 or Q5_0 (int4.h).
 *
 * Words have 32 bits and hold 8 codes, the first in the lowest bits; o is a row, i a column:
 *
 *                        codes                            scales         zeros
 *   AWQ                  word [i][o / 8], place[o % 8]    [i / g][o]     word [i / g][o / 8], place
 *   GPTQ                 word [i / 8][o], i % 8           [i / g][o]     word [i / g][o / 8], o % 8
 *   compressed-tensors   word [o][i / 8], i % 8           [o][i / g]     word [o / 8][i / g], o % 8
 *
 * AWQ's order of codes in a word puts columns 0 2 4 6 1 3 5 7 into places 0 to 7. GPTQ's first
 * format stores zeros less 1: GPTQModel subtracts 0x11111111 from each word and adds it again, so
 * that a zero of 0 borrows from its neighbour and gets it back; we add it the same way.
 * compressed-tensors stores codes and zeros plus 8, which falls out of their difference. */
#include <string.h>

#include "base/err.h"
#include "model/int4/inside.h"

enum { SYMMETRIC = 8, MIDDLE = 16 }; /* zeros of a symmetric form; Q5_0's offset */

static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* ---- reading ---- */

static uint32_t word_of(const vt_tensor *t, int64_t i) { return ((const uint32_t *)t->data)[i]; }

static void awq_codes(const int4_matrix *m, int64_t row, int64_t block,
                      uint8_t q[INT4_ROWS][INT4_BLOCK])
{
    for (int64_t i = 0; i < INT4_BLOCK; i++) {
        uint32_t w = word_of(m->codes, (block * INT4_BLOCK + i) * (m->rows / 8) + row / 8);
        for (int r = 0; r < INT4_ROWS; r++)
            q[r][i] = w >> (4 * awq_place[r]) & 15;
    }
}

static void gptq_codes(const int4_matrix *m, int64_t row, int64_t block,
                       uint8_t q[INT4_ROWS][INT4_BLOCK])
{
    for (int64_t k = 0; k < INT4_BLOCK / 8; k++)
        for (int64_t r = 0; r < INT4_ROWS; r++) {
            uint32_t w = word_of(m->codes, (block * (INT4_BLOCK / 8) + k) * m->rows + row + r);
            for (int i = 0; i < 8; i++)
                q[r][8 * k + i] = w >> (4 * i) & 15;
        }
}

static void packed_codes(const int4_matrix *m, int64_t row, int64_t block, int64_t n,
                         uint8_t q[INT4_ROWS][INT4_BLOCK])
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < INT4_BLOCK / 8; k++) {
            uint32_t w = word_of(m->codes,
                                 (row + r) * (m->cols / 8) + block * (INT4_BLOCK / 8) + k);
            for (int i = 0; i < 8; i++)
                q[r][8 * k + i] = w >> (4 * i) & 15;
        }
}

/* Reads the codes of a block of n <= 8 rows, of which `row`, a multiple of 8, is the first. */
static void read_codes(const int4_matrix *m, int64_t row, int64_t block, int64_t n,
                       uint8_t q[INT4_ROWS][INT4_BLOCK])
{
    if (m->form.kind == INT4_AWQ)
        awq_codes(m, row, block, q);
    else if (m->form.kind == INT4_GPTQ)
        gptq_codes(m, row, block, q);
    else
        packed_codes(m, row, block, n, q);
}

static int zero_of(const int4_matrix *m, int64_t row, int64_t group)
{
    if (!m->zeros)
        return SYMMETRIC;
    if (m->form.kind == INT4_PACKED)
        return word_of(m->zeros, row / 8 * (m->cols / m->group) + group) >> (4 * (row % 8)) & 15;
    uint32_t w = word_of(m->zeros, group * (m->rows / 8) + row / 8);
    if (m->form.kind == INT4_AWQ)
        return w >> (4 * awq_place[row % 8]) & 15;
    return (m->form.plain_zeros ? w : w + 0x11111111) >> (4 * (row % 8)) & 15;
}

/* Returns the scale in F16: infinite or NaN where it is refused. */
static uint16_t scale_of(const int4_matrix *m, int64_t row, int64_t group)
{
    int64_t at = m->form.kind == INT4_PACKED ? row * (m->cols / m->group) + group
                                             : group * m->rows + row;
    uint16_t bits = ((const uint16_t *)m->scales->data)[at];
    return m->scales->dtype == VT_F16 ? bits : vt_f32_to_f16(vt_bf16_to_f32(bits));
}

static bool finite_f16(uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

/* ---- writing ---- */

static void write_q4_0(uint16_t d, const uint8_t *q, uint8_t *out)
{
    memcpy(out, &d, sizeof d);
    for (int j = 0; j < 16; j++)
        out[2 + j] = (uint8_t)(q[j] | q[j + 16] << 4);
}

static void write_q5_0(uint16_t d, int zero, const uint8_t *q, uint8_t *out)
{
    uint8_t moved[INT4_BLOCK];
    uint32_t fifth = 0;
    for (int j = 0; j < INT4_BLOCK; j++) {
        moved[j] = (uint8_t)(q[j] + MIDDLE - zero);
        fifth |= (uint32_t)(moved[j] >> 4) << j;
    }
    memcpy(out, &d, sizeof d);
    memcpy(out + 2, &fifth, sizeof fifth);
    for (int j = 0; j < 16; j++)
        out[6 + j] = (uint8_t)((moved[j] & 15) | moved[j + 16] << 4);
}

/* Makes n <= 8 rows from `row`, a multiple of 8, on. */
static bool repack_rows(const int4_matrix *m, int64_t row, int64_t n)
{
    uint8_t q[INT4_ROWS][INT4_BLOCK];
    uint16_t d[INT4_ROWS] = {0};
    int zero[INT4_ROWS] = {0};
    int64_t bytes = vt_dtype_get(m->out->dtype)->bytes;
    int64_t stride = vt_dtype_row_bytes(m->out->dtype, m->cols), each = m->group / INT4_BLOCK;
    uint8_t *out = (uint8_t *)m->out->data + row * stride;
    for (int64_t b = 0; b < m->cols / INT4_BLOCK; b++, out += bytes) {
        for (int64_t r = 0; r < n && b % each == 0; r++) {
            d[r] = scale_of(m, row + r, b / each);
            zero[r] = zero_of(m, row + r, b / each);
            if (!finite_f16(d[r]) || (m->form.symmetric && zero[r] != SYMMETRIC))
                return false;
        }
        read_codes(m, row, b, n, q);
        for (int64_t r = 0; r < n; r++)
            if (m->form.symmetric)
                write_q4_0(d[r], q[r], out + r * stride);
            else
                write_q5_0(d[r], zero[r], q[r], out + r * stride);
    }
    return true;
}

bool int4_repack(const int4_matrix *m, int64_t first, int64_t n)
{
    for (int64_t at = 0; at < n; at += INT4_ROWS)
        if (!repack_rows(m, first + at, n - at < INT4_ROWS ? n - at : INT4_ROWS))
            return false;
    return true;
}

vt_status int4_say_refused(const int4_matrix *m, const char *path, vt_err *err)
{
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t g = 0; g < m->cols / m->group; g++) {
            if (!finite_f16(scale_of(m, r, g)))
                return vt_fail(err, VT_ERR_MODEL,
                               "%s: tensor %s has a scale for row %lld, group %lld, that is not "
                               "finite or beyond 65504, the largest of F16",
                               path, m->scales->name, (long long)r, (long long)g);
            if (m->form.symmetric && zero_of(m, r, g) != SYMMETRIC)
                return vt_fail(err, VT_ERR_MODEL,
                               "%s: tensor %s has the zero %d for row %lld, group %lld; 8 was "
                               "expected, for quantization_config says that it is symmetric",
                               path, m->zeros->name, zero_of(m, r, g), (long long)r, (long long)g);
        }
    return vt_fail(err, VT_ERR_MODEL, "%s: the scales of %s changed while they were read", path,
                   m->out->name);
}
