/* Parameters of kv_store_variants.cu. The host's code and the kernel include this file. */
#ifndef VT_OPS_KV_STORE_KV_STORE_VARIANTS_PARAMS_H
#define VT_OPS_KV_STORE_KV_STORE_VARIANTS_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

/* A token and the slot that its K and V go to. */
typedef struct kv_store_place {
    int32_t token, slot;
} kv_store_place;

typedef struct kv_store_variants_params {
    const uint16_t *k, *v;
    kv_t *k_pool, *v_pool;
    const int32_t *slot;
    const kv_store_place *place;          /* SORTED: [n_tokens] in rising order of slots */
    int32_t k_stride, v_stride, n_tokens; /* strides in elements */
    float k_inverse, v_inverse;           /* 1 / scale, for FP8 */
} kv_store_variants_params;

#endif
