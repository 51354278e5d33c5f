/* y[t, i] = act(x[t, i]) * x[t, n + i]      x = [gate | up]
 * y[t, i] = act(x[t, i]) * up[t, i]         where `up` is a tensor of its own
 *
 * act is silu or gelu (tanh form). fp32 inside. A program uses it if the linear before it has no
 * SwiGLU epilogue. */
#ifndef VT_OPS_SILU_MUL_H
#define VT_OPS_SILU_MUL_H

#include "model/model.h"
#include "ops/op.h"

typedef struct silu_mul_args {
    const vt_tensor *x;  /* [tokens, 2 n]; [tokens, n] with `up` */
    const vt_tensor *up; /* [tokens, n] or NULL */
    vt_tensor *y;        /* [tokens, n]; with `up` it may be x */
    vt_activation activation;
} silu_mul_args;

extern const vt_op silu_mul_op;

#endif
