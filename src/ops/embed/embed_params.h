/* Parameters of embed.cu and embed_quant.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_EMBED_EMBED_PARAMS_H
#define VT_OPS_EMBED_EMBED_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct embed_params {
    const void *table; /* BF16 rows, or quantised tiles */
    const int32_t *tokens, *pool;
    uint16_t *y;
    int32_t n_tokens;
    float scale;
    int32_t first, rows; /* of a part of the vocabulary: its first id, and how many it has */
} embed_params;

#endif
