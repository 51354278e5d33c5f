/* Parameters and work items of the kernels of moe_route and moe_linear. The host's code and the
 * kernels include this file. */
#ifndef VT_OPS_MOE_MOE_PARAMS_H
#define VT_OPS_MOE_MOE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

/* Some slots of one expert: order[begin .. begin + count). moe_group.cu makes them. 16 bytes, one
 * load. */
typedef struct moe_tile {
    int32_t expert, begin, count, unused;
} moe_tile;

/* moe_route.cu, moe_route_any.cu */
typedef struct moe_route_params {
    const uint16_t *x;
    const float *router;
    const float *choice; /* moe_route_any.cu: [EXPERTS], or NULL */
    int32_t *expert;
    float *weight;
    const int32_t *n_real; /* tokens beyond are padding */
    float *logits;         /* moe_route.cu: [tokens, EXPERTS] */
    uint32_t *tickets;     /* moe_route.cu: one for each block of tokens */
    int32_t x_stride, n_tokens;
    int32_t first, mine;    /* experts [first, first + mine) are numbered from 0, others get -1 */
    float scale;            /* moe_route_any.cu */
    const float *bias;      /* BIAS: [EXPERTS], added to the logits */
    const float *by_expert; /* moe_route_any.cu: [EXPERTS] factors of weights, or NULL */
} moe_route_params;

/* moe_group.cu */
typedef struct moe_group_params {
    const int32_t *expert;
    int32_t *order;
    moe_tile *tile;
    int32_t *n_tiles;
    int32_t n_slots, n_room; /* n_room: most tiles that routing can make */
} moe_group_params;

/* moe_expert.cu, moe_quant.cu */
typedef struct moe_expert_params {
    const uint16_t *x;
    const void *weights;
    const int32_t *order, *n_tiles;
    const moe_tile *tile;
    const int32_t *expert; /* where slots are not sorted */
    const float *route;
    void *y; /* UP: h, BF16; else the slots' results, fp32 */
    int32_t x_stride, n_slots;
    const float *bias, *up_bias; /* BIAS: [experts, ROWS] of gate or down, and of up */
    float limit;                 /* ACT 2 */
} moe_expert_params;

/* moe_sum.cu */
typedef struct moe_sum_params {
    const float *part;
    const int32_t *expert;
    uint16_t *y;
    int32_t y_stride;
} moe_sum_params;

/* moe_permute.cu */
typedef struct moe_permute_params {
    const uint16_t *x;
    uint16_t *out;
    int32_t x_stride, n_tokens;
} moe_permute_params;

/* moe_gather.cu */
typedef struct moe_gather_params {
    const uint16_t *x;
    const int32_t *order, *n_tiles;
    const moe_tile *tile;
    uint16_t *out;
    int32_t x_stride;
} moe_gather_params;

/* moe_combine.cu */
typedef struct moe_combine_params {
    const uint16_t *part;
    const int32_t *expert;
    const float *weight;
    uint16_t *y;
    int32_t y_stride;
} moe_combine_params;

/* moe_expert_any.cu */
typedef struct moe_expert_any_params {
    const uint16_t *x, *weights; /* down: x is h */
    const int32_t *expert;
    const float *route;
    uint16_t *y; /* UP: h */
    int32_t x_stride, y_stride;
    const float *bias, *up_bias; /* as in moe_expert_params */
    float limit;
} moe_expert_any_params;

#endif
