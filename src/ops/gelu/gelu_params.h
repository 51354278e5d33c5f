/* Parameters of gelu.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_GELU_GELU_PARAMS_H
#define VT_OPS_GELU_GELU_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct gelu_params {
    const uint16_t *x;
    uint16_t *y;
    int32_t x_stride, y_stride, n_tokens;
} gelu_params;

#endif
