/* Parameters of silu_mul.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_SILU_MUL_SILU_MUL_PARAMS_H
#define VT_OPS_SILU_MUL_SILU_MUL_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct silu_mul_params {
    const uint16_t *x, *up; /* up: APART */
    uint16_t *y;
    int32_t x_stride, up_stride, y_stride, n_tokens;
} silu_mul_params;

#endif
