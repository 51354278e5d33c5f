/* Parameters of add.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_RMSNORM_ADD_PARAMS_H
#define VT_OPS_RMSNORM_ADD_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct add_params {
    const uint16_t *x;
    uint16_t *residual;
    int32_t x_stride, residual_stride, n_rows; /* strides in elements */
} add_params;

#endif
