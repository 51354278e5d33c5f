/* y[t, i] = cap * tanh(x[t, i] / cap): keeps values within +-cap. An op that no model here calls.
 * It shows what an op needs, and test_toy_op what it then has. */
#ifndef VT_TESTS_SOFTCAP_H
#define VT_TESTS_SOFTCAP_H

#include "ops/op.h"

typedef struct softcap_args {
    const vt_tensor *x; /* [tokens, n] fp32 */
    vt_tensor *y;       /* [tokens, n] fp32 */
    float cap;
} softcap_args;

extern const vt_op softcap_op;

#endif
