/* Parameters of segment_sum.cu, and the items of its plan. The host's code and the kernel include
 * this file. */
#ifndef VT_OPS_SEGMENT_SUM_SEGMENT_SUM_PARAMS_H
#define VT_OPS_SEGMENT_SUM_SEGMENT_SUM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct segment_rows {
    int32_t first, n; /* n 0: no segment */
} segment_rows;

typedef struct segment_sum_params {
    const uint16_t *x;
    const segment_rows *segment;
    float *sum, *rest;
    int32_t x_stride, y_stride;
} segment_sum_params;

#endif
