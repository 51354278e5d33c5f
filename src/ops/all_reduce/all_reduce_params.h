/* Parameters of all_reduce.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ALL_REDUCE_ALL_REDUCE_PARAMS_H
#define VT_OPS_ALL_REDUCE_ALL_REDUCE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/comm_params.h"
#endif

typedef struct all_reduce_params {
    comm_params comm;
    const uint16_t *x[COMM_GPU_RANKS]; /* what each rank registered, or its copy in host memory */
    uint16_t *stage;                   /* STAGED: where this rank's is copied to */
    uint16_t *part[COMM_GPU_RANKS];    /* two-shot: the sums that each rank makes for all */
    void *inbox[COMM_GPU_RANKS];       /* push: where each rank is sent packets */
    const uint16_t *residual;          /* or NULL */
    uint16_t *y;
    uint64_t n; /* vectors */
} all_reduce_params;

#endif
