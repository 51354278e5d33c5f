/* Quantised types: exact scalar conversion of rows. Every faster implementation is compared with
 * these. The layouts are GGUF's (ggml-common.h describes them; tests compare with the `gguf` Python
 * package). */
#ifndef VT_BASE_QUANT_H
#define VT_BASE_QUANT_H

#include "base/tensor.h"

/* Converts n elements (a multiple of the type's block) of any float or quantised type to fp32. */
void vt_dequant_row(vt_dtype type, const void *src, float *dst, int64_t n);
/* Converts fp32 to `type`. Quantised types are rounded to nearest within each block: good enough
 * for tests and random models, not for publishing quantised weights. */
void vt_quant_row(vt_dtype type, const float *src, void *dst, int64_t n);

/* The values of the types that store places in a table, and MXFP4's scale as BF16. */
extern const int8_t vt_iq4_nl[16], vt_mxfp4[16];
uint16_t vt_mxfp4_scale(uint8_t e);
/* The scale (-32 .. 31) of a group of 32 in an IQ4_XS block. */
int vt_iq4_xs_scale(const uint8_t *block, int group);
/* The two bits (0 .. 3) of element e in the 64 bytes of them that Q2_K and Q3_K blocks have. */
int vt_k_two_bits(const uint8_t *q, int e);
/* The quant of element e (-4 .. 3) of a Q3_K block; and the 16 scales (-32 .. 31) from the block's
 * 12 bytes of them. */
int vt_q3_k_quant(const uint8_t *block, int e);
void vt_q3_k_scales(const uint8_t *b, int8_t s[16]);

#endif
