/* KV store for avx2: kv_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/kv_store/kv_store_kernel.h"
