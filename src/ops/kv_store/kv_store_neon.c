/* KV store for neon: kv_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/kv_store/kv_store_kernel.h"
