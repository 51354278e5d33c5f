/* Parameters of gemm_sm90.cu and gemm_split_sm90.cu. All tensor maps have 128-byte swizzle. The
 * host's code and the kernels include this file. */
#ifndef VT_OPS_LINEAR_LINEAR_SM90_PARAMS_H
#define VT_OPS_LINEAR_LINEAR_SM90_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct gemm_sm90_params {
    cu_tensor_map x, w;        /* boxes [128, 64] and [BN, 64], with PAIR [BN / 2, 64] */
    cu_tensor_map y, residual; /* boxes [64, 64]; residual [m, n] BF16 may be y */
    float *y_f32;              /* OUT_F32: the output, row stride y_stride */
    const float *bias;         /* [n] */
    int32_t m, n, k, y_stride;
    float scale;
} gemm_sm90_params;

typedef struct gemm_split_params {
    cu_tensor_map x, w; /* boxes [X_ROWS, 64] and [64, 64], with PAIR [32, 64] */
    void *y;
    const uint16_t *residual; /* may be y */
    const float *bias;        /* [n] */
    int32_t m, n, k, y_stride, residual_stride;
    float scale;
} gemm_split_params;

#endif
