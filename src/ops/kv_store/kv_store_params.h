/* Parameters of kv_store.cu and kv_store_any.cu. The host's code and the kernels include this
 * file. */
#ifndef VT_OPS_KV_STORE_KV_STORE_PARAMS_H
#define VT_OPS_KV_STORE_KV_STORE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct kv_store_params {
    const uint16_t *k, *v;
    kv_t *k_pool, *v_pool;
    const int32_t *slot;
    int32_t k_stride, v_stride, n_tokens; /* strides in elements */
    float k_inverse, v_inverse;           /* 1 / scale, for FP8 */
} kv_store_params;

#endif
