/* Experts as folders of gpt-oss and Qwen3-VL hold them, made into matrices [out, in] of a type that
 * rows read. */
#ifndef VT_MODEL_TRANSPOSED_H
#define VT_MODEL_TRANSPOSED_H

#include <stdint.h>

/* Makes `rows` rows of MXFP4 in GGUF's layout from rows first, first + step ... of blocks, in which
 * a byte holds two neighbouring elements, the even one low. A row has n_blocks blocks. */
void model_mxfp4_rows(const uint8_t *blocks, const uint8_t *scales, int64_t n_blocks, int64_t first,
                      int64_t step, int64_t rows, uint8_t *out /* [rows, n_blocks, 17] */);

/* Makes rows of `in` elements from columns first, first + step ... of a matrix [in, columns] whose
 * elements have `bytes` bytes. */
void model_columns_to_rows(const void *from, int64_t in, int64_t columns, int64_t first,
                           int64_t step, int64_t rows, int64_t bytes, void *out /* [rows, in] */);

#endif
