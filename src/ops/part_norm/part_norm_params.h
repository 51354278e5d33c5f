/* Parameters of part_norm.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_PART_NORM_PART_NORM_PARAMS_H
#define VT_OPS_PART_NORM_PART_NORM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct part_norm_params {
    const uint16_t *x, *add;    /* add NULL: nothing is added */
    const float *weight, *gain; /* NULL: ones */
    uint16_t *y;
    int32_t x_stride, add_stride, y_stride;
    int32_t parts, n_parts; /* of a row, of all rows */
    float eps, scale, plus; /* plus: added to each weight */
} part_norm_params;

#endif
