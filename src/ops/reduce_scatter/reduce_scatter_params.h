/* Parameters of reduce_scatter.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_REDUCE_SCATTER_REDUCE_SCATTER_PARAMS_H
#define VT_OPS_REDUCE_SCATTER_REDUCE_SCATTER_PARAMS_H

#ifndef VT_KERNEL
#include "ops/comm_params.h"
#endif

typedef struct reduce_scatter_params {
    comm_params comm;
    const uint16_t *x[COMM_GPU_RANKS];  /* [rows, n] what each rank registered, or its copy */
    uint16_t *stage;                    /* STAGED: where this rank's is copied to */
    void *inbox[COMM_GPU_RANKS];        /* push: where each rank is sent packets */
    uint32_t first[COMM_GPU_RANKS + 1]; /* first column of each rank's part; then n */
    uint32_t rows;
    uint16_t *y; /* [rows, first[rank + 1] - first[rank]] */
} reduce_scatter_params;

#endif
