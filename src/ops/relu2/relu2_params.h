/* Parameters of relu2.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_RELU2_RELU2_PARAMS_H
#define VT_OPS_RELU2_RELU2_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct relu2_params {
    const uint16_t *x;
    uint16_t *y;
    int32_t x_stride, y_stride, n_tokens;
} relu2_params;

#endif
