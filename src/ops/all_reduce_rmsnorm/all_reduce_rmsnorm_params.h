/* Parameters of all_reduce_rmsnorm.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ALL_REDUCE_RMSNORM_ALL_REDUCE_RMSNORM_PARAMS_H
#define VT_OPS_ALL_REDUCE_RMSNORM_ALL_REDUCE_RMSNORM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/all_reduce/all_reduce_params.h"
#endif

typedef struct all_reduce_rmsnorm_params {
    all_reduce_params sum;
    const float *weight; /* [HIDDEN] */
    uint16_t *y;         /* [rows, HIDDEN] */
    uint32_t rows;
    float eps;
} all_reduce_rmsnorm_params;

#endif
