/* Parameters of rope_pairs.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_ROPE_ROPE_PAIRS_PARAMS_H
#define VT_OPS_ROPE_ROPE_PAIRS_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct rope_pairs_params {
    uint16_t *q, *k;
    const int32_t *position;
    const float *cos_sin;
    int32_t q_stride, k_stride, n_tokens; /* strides in elements */
} rope_pairs_params;

#endif
