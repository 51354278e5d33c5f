/* Parameters of all_gather.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ALL_GATHER_ALL_GATHER_PARAMS_H
#define VT_OPS_ALL_GATHER_ALL_GATHER_PARAMS_H

#ifndef VT_KERNEL
#include "ops/comm_params.h"
#endif

typedef struct all_gather_params {
    comm_params comm;
    const float *x[COMM_GPU_RANKS];   /* [rows, cols[r]] what each rank registered, or its copy */
    float *stage;                     /* STAGED: where this rank's is copied to, in host memory */
    uint32_t cols[COMM_GPU_RANKS], n; /* n: columns of y */
    uint32_t rows;
    float *y; /* [rows, n] */
} all_gather_params;

#endif
