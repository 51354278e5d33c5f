/* y[t, i] = max(x[t, i], 0)^2                x, y [tokens, n]
 *
 * The square of ReLU, in fp32. (So et al., 2021, Primer, arXiv:2109.08668.) */
#ifndef VT_OPS_RELU2_H
#define VT_OPS_RELU2_H

#include "ops/op.h"

typedef struct relu2_args {
    const vt_tensor *x; /* [tokens, n] */
    vt_tensor *y;       /* [tokens, n]; may be x */
} relu2_args;

extern const vt_op relu2_op;

#endif
