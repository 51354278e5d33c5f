/* Quantised types: exact scalar conversion of rows, the yardstick of every faster path. Layouts are
 * GGUF's (ggml-common.h is the public description; checked against the `gguf` Python package). */
#ifndef VT_MODEL_QUANT_H
#define VT_MODEL_QUANT_H

#include "base/tensor.h"

/* n elements (a multiple of the type's block) of any float or quantised type -> fp32. */
void vt_dequant_row(vt_dtype type, const void *src, float *dst, int64_t n);
/* fp32 -> type. Quantised types: plain round-to-nearest per block, for tests and random models; not
 * a quantiser of record. */
void vt_quant_row(vt_dtype type, const float *src, void *dst, int64_t n);

#endif
