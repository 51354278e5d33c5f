/* A product for each head, with a matrix of its own.
 *
 *   x[t, h] = ( in | rest )        y[t, h] = ( rest | W[h] in )
 *
 * Latent attention needs two: of q, whose dimensions without rope then fit a latent of the cache,
 * with the rotated ones copied to the front; and of what is read there, which becomes a head's v
 * (rest 0). The products are those of the linear op: its rows, tolerances and quantised forms. */
#ifndef VT_OPS_HEAD_LINEAR_H
#define VT_OPS_HEAD_LINEAR_H

#include "ops/op.h"

typedef struct head_linear_args {
    const vt_tensor *x; /* [tokens, heads * (in + rest)] */
    const vt_weight *w; /* [heads], each [out, in] */
    vt_tensor *y;       /* [tokens, heads * (rest + out)] */
    int32_t heads, rest;
} head_linear_args;

extern const vt_op head_linear_op;

#endif
