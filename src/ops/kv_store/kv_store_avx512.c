/* KV store for avx512: kv_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/kv_store/kv_store_kernel.h"
