/* Parameters of selective_state.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_SELECTIVE_STATE_SELECTIVE_STATE_PARAMS_H
#define VT_OPS_SELECTIVE_STATE_SELECTIVE_STATE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct selective_state_params {
    const uint16_t *x, *dt;
    uint16_t *y;
    const float *decay, *dt_bias, *skip;
    float *state; /* of slot 0, from column state_at on */
    int64_t state_stride;
    const int32_t *seq_of, *q_start, *state_from, *state_to, *state_behind;
    int32_t x_stride, dt_stride, y_stride, heads, groups;
    float step_min, step_max;
} selective_state_params;

#endif
