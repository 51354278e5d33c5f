/* Parameters of square_sums.cu and sharded_rmsnorm.cu. The host's code and the kernels include this
 * file. */
#ifndef VT_OPS_SHARDED_RMSNORM_SHARDED_RMSNORM_PARAMS_H
#define VT_OPS_SHARDED_RMSNORM_SHARDED_RMSNORM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/comm_params.h"
#endif

enum { SHARDED_PARTS = 2, SQUARE_SUMS_THREADS = 256 };

typedef struct square_sums_params {
    const uint16_t *x[SHARDED_PARTS];
    uint32_t cols[SHARDED_PARTS], stride[SHARDED_PARTS]; /* 0 columns: the sums are 0 */
    float *y;                                            /* [rows, SHARDED_PARTS] */
} square_sums_params;

typedef struct sharded_part_params {
    const uint16_t *x;
    const float *weight; /* [cols] */
    uint16_t *y;         /* may be x */
    uint32_t cols, x_stride, y_stride;
    float whole; /* columns of all ranks */
} sharded_part_params;

typedef struct sharded_rmsnorm_params {
    comm_params comm;
    const float *sums[COMM_GPU_RANKS]; /* what each rank registered, or its copy in host memory */
    float *stage;                      /* STAGED: where this rank's are copied to */
    void *inbox[COMM_GPU_RANKS];       /* push: where each rank is sent packets */
    sharded_part_params part[SHARDED_PARTS];
    uint32_t rows, warps; /* warps: those that share a row */
    float eps;
} sharded_rmsnorm_params;

#endif
