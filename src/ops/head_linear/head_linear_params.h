/* Parameters of head_linear.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_HEAD_LINEAR_HEAD_LINEAR_PARAMS_H
#define VT_OPS_HEAD_LINEAR_HEAD_LINEAR_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct head_linear_params {
    const uint16_t *x, *w;
    uint16_t *y;
    int32_t x_stride, y_stride, n_tokens;
} head_linear_params;

#endif
