/* y[t, i] = gelu(x[t, i])                    x [tokens, n]
 * y[t, i] = gelu(x[t, i]) * x[t, n + i]      gated: x = [gate | up], [tokens, 2 n]
 *
 * gelu(v) = v * Phi(v), Phi being the normal distribution's (the form with erf, not that with
 * tanh). fp32 inside. (Hendrycks and Gimpel, 2016, arXiv:1606.08415.) */
#ifndef VT_OPS_GELU_H
#define VT_OPS_GELU_H

#include "ops/op.h"

typedef struct gelu_args {
    const vt_tensor *x; /* [tokens, n or 2 n] */
    vt_tensor *y;       /* [tokens, n]; may be x if it is not gated */
    bool gated;
} gelu_args;

extern const vt_op gelu_op;

#endif
