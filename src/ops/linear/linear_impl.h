/* The files of the linear op share this: weights row by row, and the table's entries. */
#ifndef VT_OPS_LINEAR_IMPL_H
#define VT_OPS_LINEAR_IMPL_H

#include "ops/cut.h"
#include "ops/linear/linear.h"

#define LINEAR_SCALE_BLOCK VT_SCALE_BLOCK /* FP8 scales cover 128 x 128 weights */

/* Element i of a dense F32, F16 or BF16 tensor. */
float linear_float_at(const vt_tensor *t, int64_t i);
/* The factor of weight [row, col] of an FP8 matrix: its scale is one number, or one for each block
 * of 128 x 128. 1 without a scale. */
float linear_scale_at(const vt_tensor *scale, int64_t row, int64_t col);
/* The part that holds row *row of the stacked weight; *row becomes the row within that part. */
int32_t linear_part_of(const vt_weight *w, int64_t *row);
static inline bool linear_scaled(const vt_weight *w)
{
    return w->scale[0] || w->scale[1] || w->scale[2];
}
/* Row `row` of one part, in the form of the file. The part may be a view of a wider tensor. */
static inline const void *linear_part_row(const vt_tensor *part, int64_t row)
{
    return (const char *)part->data + row * vt_dtype_row_bytes(part->dtype, part->row_stride);
}
/* Row `row` of the stacked weight as fp32, with FP8 scales applied. dst is [cols]. */
void linear_weight_row(const vt_weight *w, int64_t row, float *dst);

/* "[17 x 4096] x [4096 x 6144] Q4_K": x times the transposed weight. */
static inline void linear_cut_shape(const linear_args *a, const vt_size *size, vt_cut *out)
{
    vt_cut_shape(out, "[%lld x %lld] x [%lld x %lld] %s", (long long)vt_size_rows(a->x, size),
                 (long long)a->w->cols, (long long)a->w->cols, (long long)a->w->rows,
                 vt_dtype_get(a->w->dtype)->name);
}

extern const vt_impl linear_portable, linear_avx2, linear_avxvnni, linear_avx512, linear_amx;
extern const vt_impl linear_neon; /* arm64 */

#endif
