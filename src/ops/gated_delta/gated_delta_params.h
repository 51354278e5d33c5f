/* Parameters of gated_delta.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_GATED_DELTA_GATED_DELTA_PARAMS_H
#define VT_OPS_GATED_DELTA_GATED_DELTA_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct gated_delta_params {
    const uint16_t *x, *a, *b;
    uint16_t *y;
    const float *decay, *dt_bias;
    float *state; /* of slot 0, from column state_at on */
    int64_t state_stride;
    const int32_t *seq_of, *q_start, *state_from, *state_to, *state_behind;
    int32_t x_stride, a_stride, b_stride, y_stride, k_heads, v_heads;
} gated_delta_params;

#endif
