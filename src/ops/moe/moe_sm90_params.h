/* Parameters of moe_gemm_sm90.cu and moe_quant_sm90.cu. The host's code and the kernels include
 * this file. */
#ifndef VT_OPS_MOE_MOE_SM90_PARAMS_H
#define VT_OPS_MOE_MOE_SM90_PARAMS_H

#ifndef VT_KERNEL
#include "ops/moe/moe_params.h"
#endif

typedef struct moe_gemm_params {
    cu_tensor_map w;     /* 128-byte swizzle. UP: [experts][ffn / 8][gate, up][8][K], boxes
                        [1][8][2][8][64]; down: [experts][hidden][K], boxes [1][128][64] */
    cu_tensor_map rows;  /* 128-byte swizzle, IN_ORDER: x or h [slots][K], boxes [32][64] */
    const void *weights; /* in quantised tiles, in place of w */
    const uint16_t *x;
    const int32_t *order, *n_tiles;
    const moe_tile *tile;
    uint16_t *y;
    uint32_t *ticket;
    int32_t x_stride;
    const float *bias, *up_bias; /* as in moe_expert_params */
    float limit;
} moe_gemm_params;

#endif
