/* Parameters of layernorm.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_LAYERNORM_LAYERNORM_PARAMS_H
#define VT_OPS_LAYERNORM_LAYERNORM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct layernorm_params {
    const uint16_t *x;
    const int32_t *row;
    const float *weight, *bias;
    uint16_t *y;
    int32_t x_stride, y_stride, n_rows;
    float eps;
} layernorm_params;

#endif
