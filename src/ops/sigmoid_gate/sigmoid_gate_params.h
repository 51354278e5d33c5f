/* Parameters of sigmoid_gate.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_SIGMOID_GATE_SIGMOID_GATE_PARAMS_H
#define VT_OPS_SIGMOID_GATE_SIGMOID_GATE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct head_gate_params {
    const uint16_t *x;
    uint16_t *y;
    int32_t x_stride, y_stride, n_tokens;
} head_gate_params;

typedef struct row_gate_params {
    const uint16_t *x;
    const float *w;
    uint16_t *y;
    int32_t x_stride, y_stride, hidden, n;
    uint32_t n_tokens;
} row_gate_params;

#endif
