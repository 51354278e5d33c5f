/* Cases beyond the cards': weights and shapes of the models that a GPU serves. Parameters mean what
 * the card's make_args makes of them. */
#ifndef VT_TESTS_GPU_CASES_H
#define VT_TESTS_GPU_CASES_H

#include "ops/linear/linear.h"
#include "ops/op.h"

typedef struct gpu_case {
    const char *op;
    bool f32_out; /* linear: fp32 results, as the head has them */
    vt_case c;
} gpu_case;

extern const gpu_case gpu_cases[];

#endif
