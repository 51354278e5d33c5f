/* Parameters of gated_norm.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_GATED_NORM_GATED_NORM_PARAMS_H
#define VT_OPS_GATED_NORM_GATED_NORM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct gated_norm_params {
    const uint16_t *x, *z;
    const float *weight;
    uint16_t *y;
    int32_t x_stride, z_stride, y_stride, heads, n; /* n: heads of all tokens */
    float eps;
} gated_norm_params;

#endif
