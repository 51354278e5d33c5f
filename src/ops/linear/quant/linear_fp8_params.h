/* Parameters of linear_fp8_sm90.cu and gemm_fp8_sm90.cu. The host's code and the kernels include
 * this file. */
#ifndef VT_OPS_LINEAR_QUANT_LINEAR_FP8_PARAMS_H
#define VT_OPS_LINEAR_QUANT_LINEAR_FP8_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct linear_fp8_params {
    cu_tensor_map x; /* bytes, boxes [TOKENS, 128]; gemm_fp8_sm90.cu: [128, 128] */
    /* Quantised tiles; a pair has two halves, other weights one.
     *   linear_fp8_sm90.cu   [halves][tiles][units][words of 8 bytes], boxes [2][8][1][132] of a
     *                        pair, else [1][16][1][132]
     *   gemm_fp8_sm90.cu     [units][halves][tiles][8 rows of columns 0 to 63, then of 64 to 127]
     *                        [64 bytes], boxes [1][1][ROWS / 16][16][64], 64-byte swizzle */
    cu_tensor_map w;
    /* gemm_fp8_sm90.cu alone. w_scale: [halves][tiles][units][words of 8 bytes], whose last 4 are
     * the scales of 8 rows, boxes [2][ROWS / 16][1][4] of a pair, else [1][ROWS / 8][1][4]. y and
     * the residual: bf16, boxes [64, 64], of a pair [64, 32]. */
    cu_tensor_map w_scale, y_map, from_map;
    const float *x_scale;     /* [K / 128][padded] */
    const float *bias;        /* [rows] */
    const uint16_t *residual; /* linear_fp8_sm90.cu, as y; may be y */
    void *y;
    int32_t y_stride, residual_stride, n_tokens, padded;
    int32_t rows; /* outputs; for a pair their number after the activation */
    float scale;
} linear_fp8_params;

#endif
