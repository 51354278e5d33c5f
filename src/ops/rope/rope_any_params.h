/* Parameters of rope_any.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ROPE_ROPE_ANY_PARAMS_H
#define VT_OPS_ROPE_ROPE_ANY_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct rope_any_params {
    uint16_t *q, *k;
    const int32_t *position;
    const float *cos_sin, *q_cos_sin, *q_norm, *k_norm; /* norms may be NULL */
    int32_t q_stride, k_stride, n_tokens;
    float eps;
} rope_any_params;

#endif
