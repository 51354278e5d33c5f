/* Parameters of rope.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ROPE_ROPE_PARAMS_H
#define VT_OPS_ROPE_ROPE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct rope_params {
    uint16_t *q, *k;
    const uint16_t *v;
    kv_t *k_pool, *v_pool;
    const int32_t *position, *slot;
    const float *cos_sin, *q_cos_sin, *q_norm, *k_norm;
    int32_t q_stride, k_stride, v_stride, n_tokens;
    float eps, k_inverse, v_inverse; /* 1 / scale, for FP8 */
} rope_params;

#endif
