/* Short convolution of each channel with its last few tokens: the mixer of layers that carry a
 * short state from token to token, or a part of it. w has a row of taps for each channel.
 *
 *   gated (LFM2's, without its projections)        silu (before delta rules and state spaces)
 *   x = [b | c | u], `hidden` each                 x = v
 *   v[p, i] = b[p, i] * u[p, i]
 *   s[p, i] = bias[i] + sum over j of w[i, j] * v[p - taps + 1 + j, i]        v is 0 before p = 0
 *   y[p, i] = c[p, i] * s[p, i]                    y[p, i] = silu(s[p, i])
 *
 * p is the position in the token's sequence. The values of v at the last taps - 1 positions before
 * a sequence's first token here are its state: they are read from slot batch.state_from, oldest
 * first, and those before the next token are written to slot batch.state_to. They are the first
 * numbers of a slot. The state behind a token whose batch.state_behind says so is written to that
 * slot too. fp32 throughout. */
#ifndef VT_OPS_SHORT_CONV_H
#define VT_OPS_SHORT_CONV_H

#include "ops/op.h"

enum { SHORT_CONV_TAPS_MOST = 8 };

typedef struct short_conv_args {
    const vt_batch *batch; /* seq_of, q_start, state_from, state_to, state_behind */
    const vt_tensor *x;    /* [tokens, 3 hidden]; silu: [tokens, hidden] */
    const vt_tensor *w;    /* [hidden, taps], of a float type */
    const vt_tensor *bias; /* [hidden], of a float type, or NULL: none */
    vt_tensor *state;      /* [slots, (taps - 1) hidden or more] */
    vt_tensor *y;          /* [tokens, hidden] */
    bool silu;
} short_conv_args;

extern const vt_op short_conv_op;

#endif
