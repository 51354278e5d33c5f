/* Parameters of lora.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_LORA_LORA_PARAMS_H
#define VT_OPS_LORA_LORA_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

enum { LORA_ITEM_TOKENS = 16 };

/* Up to LORA_ITEM_TOKENS tokens that have one adapter: tokens[first .. first + n) of the plan. */
typedef struct lora_item {
    int32_t adapter, first, n, unused; /* n 0: no more items */
} lora_item;

typedef struct lora_part_params {
    const uint16_t *a, *b; /* [ranks, cols], [ranks, rows] */
    uint16_t *y;
    int32_t y_stride, rows;
    int32_t first[33]; /* of the adapters: rows of a and b */
    float scale[32];
} lora_part_params;

typedef struct lora_params {
    const uint16_t *x;
    const lora_item *items;
    const int32_t *tokens;
    int32_t x_stride, cols, sum_stride; /* sum_stride: floats of a token's row in shared memory */
    lora_part_params part[3];
} lora_params;

#endif
