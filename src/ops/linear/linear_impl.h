/* What the files of the linear op share: weights row by row, and the table's entries. */
#ifndef VT_OPS_LINEAR_IMPL_H
#define VT_OPS_LINEAR_IMPL_H

#include "ops/linear/linear.h"

#define LINEAR_SCALE_BLOCK 128 /* FP8 scales cover 128 x 128 weights */

/* Element i of a dense F32, F16 or BF16 tensor. */
float linear_float_at(const vt_tensor *t, int64_t i);
/* Row `row` of the stacked weight as fp32, FP8 scales applied. dst is [cols]. */
void linear_weight_row(const vt_weight *w, int64_t row, float *dst);

extern const vt_impl linear_portable, linear_avx2, linear_avx512, linear_amx;

#endif
