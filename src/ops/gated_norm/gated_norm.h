/* RMSNorm of parts of a row, and a gate. fp32 inside, one rounding at the end.
 *
 *   heads (behind a delta rule)                       groups (behind a state space)
 *   y = w * x / sqrt(mean(x^2) + eps) * silu(z)       v = x * silu(z)
 *                                                     y = w * v / sqrt(mean(v^2) + eps)
 *   w is the same for all heads                       w has a number for each of a row
 *
 * Heads may have sigmoid(z) in the place of silu(z). */
#ifndef VT_OPS_GATED_NORM_GATED_NORM_H
#define VT_OPS_GATED_NORM_GATED_NORM_H

#include "ops/op.h"

typedef struct gated_norm_args {
    const vt_tensor *x;      /* [tokens, heads dim] */
    const vt_tensor *z;      /* [tokens, heads dim] */
    const vt_tensor *weight; /* [dim]; of groups [groups dim] */
    vt_tensor *y;            /* [tokens, heads dim]; may be x */
    float eps;
    int32_t groups; /* 0: the parts are heads */
    bool sigmoid;   /* of heads: the gate is sigmoid(z) */
} gated_norm_args;

/* Returns how many numbers a part has. */
static inline int64_t gated_norm_dim(const gated_norm_args *a)
{
    return a->groups > 0 ? a->y->dim[1] / a->groups : a->weight->dim[0];
}

extern const vt_op gated_norm_op;

#endif
