/* y[t, i] = cap tanh(y[t, i] / cap): keeps logits within +-cap, in place. */
#ifndef VT_OPS_LOGIT_CAP_H
#define VT_OPS_LOGIT_CAP_H

#include "ops/op.h"

typedef struct logit_cap_args {
    vt_tensor *y; /* [rows, vocab] fp32 */
    float cap;
} logit_cap_args;

extern const vt_op logit_cap_op;

#endif
