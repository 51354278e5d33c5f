/* y[t, i] = gain (add[t, i] + scale x[t, i] / sqrt(m + eps) w[i mod dim])
 *
 * where m is the mean of the squares of the `dim` numbers of row t that x[t, i] is among: a row is
 * cut into parts of `dim` numbers, and each part is a row of RMSNorm. Without a weight w is 1,
 * without `add` nothing is added, without a gain it is 1. One op serves what Gemma 4 has beside
 * ordinary norms: values normalised by head, sums of normalised results, and a factor of a layer.
 * fp32 inside, one rounding at the end. */
#ifndef VT_OPS_PART_NORM_H
#define VT_OPS_PART_NORM_H

#include "ops/op.h"

typedef struct part_norm_args {
    const vt_tensor *x;      /* [tokens, parts dim] */
    const vt_tensor *weight; /* [dim], float type, or NULL */
    const vt_tensor *add;    /* [tokens, parts dim] or NULL */
    const vt_tensor *gain;   /* [1], float type, or NULL */
    vt_tensor *y;            /* [tokens, parts dim]; may be x or `add` */
    int32_t dim;
    float eps, scale; /* a scale of 0 counts as 1 */
    bool plus_one;    /* weight is stored as w - 1 */
} part_norm_args;

extern const vt_op part_norm_op;

#endif
