/* Gated short convolution: the mixer of layers that carry a short state from token to token in
 * place of keys and values (LFM2's, without its projections). x = [b | c | u], `hidden` each:
 *
 *   v[p, i] = b[p, i] * u[p, i]
 *   y[p, i] = c[p, i] * sum over j of w[i, j] * v[p - taps + 1 + j, i]        v is 0 before p = 0
 *
 * p is the position in the token's sequence. The values of v at the last taps - 1 positions before
 * a sequence's first token here are its state: they are read from slot batch.state_from, oldest
 * first, and those before the next token are written to slot batch.state_to. fp32 throughout. */
#ifndef VT_OPS_SHORT_CONV_H
#define VT_OPS_SHORT_CONV_H

#include "ops/op.h"

enum { SHORT_CONV_TAPS_MOST = 8 };

typedef struct short_conv_args {
    const vt_batch *batch; /* seq_of, q_start, state_from, state_to */
    const vt_tensor *x;    /* [tokens, 3 hidden] */
    const vt_tensor *w;    /* [hidden, taps], of a float type */
    vt_tensor *state;      /* [slots, (taps - 1) hidden] */
    vt_tensor *y;          /* [tokens, hidden] */
} short_conv_args;

extern const vt_op short_conv_op;

#endif
