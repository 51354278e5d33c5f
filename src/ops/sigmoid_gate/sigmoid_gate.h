/* Gates by a sigmoid, of attention's output and of a shared expert.
 *
 * Where attention has a gate, its q projection makes d numbers of q and then d of the gate for each
 * head: x = [q0 | g0 | q1 | g1 ...].
 *   head_split   y[t, h d + i] = x[t, 2 h d + i]                              q alone
 *   head_gate    y[t, h d + i] *= sigmoid(x[t, (2 h + 1) d + i])              before the projection
 *
 * A shared expert's share of a token is one number:
 *   row_gate     y[t, i] *= sigmoid(sum over j of w[j] x[t, j])
 *
 * fp32 inside, one rounding at the end. */
#ifndef VT_OPS_SIGMOID_GATE_SIGMOID_GATE_H
#define VT_OPS_SIGMOID_GATE_SIGMOID_GATE_H

#include "ops/op.h"

typedef struct head_gate_args {
    const vt_tensor *x; /* [tokens, heads 2 dim] */
    vt_tensor *y;       /* [tokens, heads dim] */
    int32_t dim;
} head_gate_args;

typedef head_gate_args head_split_args;

typedef struct row_gate_args {
    const vt_tensor *x; /* [tokens, hidden] */
    const vt_tensor *w; /* [hidden] */
    vt_tensor *y;       /* [tokens, n] */
} row_gate_args;

extern const vt_op head_split_op, head_gate_op, row_gate_op;

#endif
