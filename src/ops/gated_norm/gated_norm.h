/* RMSNorm of each head, times a gate: y = w * x / sqrt(mean(x^2) + eps) * silu(z), the mean over
 * the `dim` numbers of a head, w the same for all heads. It follows the gated delta rule. fp32
 * inside, one rounding at the end. */
#ifndef VT_OPS_GATED_NORM_GATED_NORM_H
#define VT_OPS_GATED_NORM_GATED_NORM_H

#include "ops/op.h"

typedef struct gated_norm_args {
    const vt_tensor *x;      /* [tokens, heads dim] */
    const vt_tensor *z;      /* [tokens, heads dim] */
    const vt_tensor *weight; /* [dim] */
    vt_tensor *y;            /* [tokens, heads dim]; may be x */
    float eps;
} gated_norm_args;

extern const vt_op gated_norm_op;

#endif
