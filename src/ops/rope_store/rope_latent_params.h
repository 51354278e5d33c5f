/* Parameters of rope_latent.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ROPE_STORE_ROPE_LATENT_PARAMS_H
#define VT_OPS_ROPE_STORE_ROPE_LATENT_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct rope_latent_params {
    uint16_t *q, *pool;
    const uint16_t *k;
    const int32_t *position, *slot;
    const float *cos_sin, *q_cos_sin, *weight; /* weight: NORM */
    int32_t q_stride, k_stride, n_tokens;
    float eps;
} rope_latent_params;

#endif
