/* y[t, i] = (x[r(t), i] - mean) / sqrt(variance + eps) * w[i] + b[i]
 *
 * over rows t of y; r(t) = t, or row[t] when a row index is given (the last norm reads only the
 * rows that are wanted). mean and variance are of the row x[r(t)], the variance divided by the
 * number of elements. fp32 inside, one rounding at the end. (Ba, Kiros and Hinton, 2016,
 * arXiv:1607.06450.) */
#ifndef VT_OPS_LAYERNORM_H
#define VT_OPS_LAYERNORM_H

#include "ops/op.h"

typedef struct layernorm_args {
    const vt_tensor *x;        /* [tokens, hidden] */
    const int32_t *const *row; /* NULL, or points at batch.row_token: y has n_rows rows */
    const vt_tensor *weight;   /* [hidden], float type */
    const vt_tensor *bias;     /* likewise; NULL: none */
    vt_tensor *y;              /* [tokens or rows, hidden]; may be x when row is NULL */
    float eps;
} layernorm_args;

extern const vt_op layernorm_op;

#endif
