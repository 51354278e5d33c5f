/* y[t, i] = x[r(t), i] * (w[i] + plus_one) / sqrt(mean_i(x[r(t), i]^2) + eps)
 *
 * over rows t of y; r(t) = t, or row[t] when a row index is given (the final norm reads only the
 * rows whose logits are wanted). fp32 inside, one rounding at the end. (Zhang and Sennrich, 2019,
 * arXiv:1910.07467.)
 *
 * add_rmsnorm first updates the residual stream: s = x + r in fp32, r <- round(s), y <- norm(s). It
 * normalises the unrounded sum, as FlashInfer's fused_add_rmsnorm does. */
#ifndef VT_OPS_RMSNORM_H
#define VT_OPS_RMSNORM_H

#include "ops/op.h"

typedef struct rmsnorm_args {
    const vt_tensor *x;        /* [tokens, hidden] */
    const int32_t *const *row; /* NULL, or points at batch.row_token: y has n_rows rows */
    const vt_tensor *weight;   /* [hidden], float type */
    vt_tensor *residual;       /* add_rmsnorm only: [tokens, hidden], read and written */
    vt_tensor *y;              /* [tokens or rows, hidden]; may be x when row is NULL */
    float eps;
    bool plus_one; /* weight is stored as w - 1 (Gemma in Hugging Face form) */
} rmsnorm_args;

extern const vt_op rmsnorm_op;
extern const vt_op add_rmsnorm_op;

#endif
