/* Parameters of short_conv.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_SHORT_CONV_SHORT_CONV_PARAMS_H
#define VT_OPS_SHORT_CONV_SHORT_CONV_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct short_conv_params {
    const uint16_t *x;
    uint16_t *y;
    const float *w, *bias;
    float *state;
    int64_t state_stride;
    const int32_t *seq_of, *q_start, *state_from, *state_to, *state_behind;
    int32_t x_stride, y_stride, n_tokens, n_seqs;
} short_conv_params;

#endif
