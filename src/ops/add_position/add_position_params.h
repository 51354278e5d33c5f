/* Parameters of add_position.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_ADD_POSITION_ADD_POSITION_PARAMS_H
#define VT_OPS_ADD_POSITION_ADD_POSITION_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct add_position_params {
    const int32_t *position, *seq_of, *second; /* second NULL: each sequence has one text */
    const float *table, *types;                /* types NULL: none are added */
    uint16_t *x;
    int32_t x_stride, n_tokens, first;
} add_position_params;

#endif
