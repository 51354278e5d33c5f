/* A parameter header (<op>/<name>_params.h) needs this when host code includes it. A kernel has the
 * same names from ptx.cuh (integers), kv.cuh (kv_t) and ptx_sm90.cuh (cu_tensor_map). */
#ifndef VT_OPS_PARAMS_HOST_H
#define VT_OPS_PARAMS_HOST_H

#include <stdint.h>

#include "device/cuda/cuda_api.h"

/* An element of a KV pool: BF16 or FP8 in a kernel; the host only passes addresses of them. */
typedef void kv_t;

#endif
