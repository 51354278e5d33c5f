/* KV store for neon: kv_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/kv_store/kv_store_impls.h"
#include "ops/kv_store/kv_store_kernel.h"

const vt_impl kv_store_neon = {.name = "neon",
                               .device = VT_DEVICE_CPU,
                               .isa = VT_ISA_NEON,
                               .supports = kv_store_supports,
                               .run = kv_store_run,
                               .describe = kv_store_describe};
