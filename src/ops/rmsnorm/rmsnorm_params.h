/* Parameters of rmsnorm.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_RMSNORM_RMSNORM_PARAMS_H
#define VT_OPS_RMSNORM_RMSNORM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct rmsnorm_params {
    const uint16_t *x;
    const int32_t *row;
    const float *weight;
    uint16_t *residual, *y;
    int32_t x_stride, y_stride, residual_stride, n_rows;
    float eps;
} rmsnorm_params;

#endif
