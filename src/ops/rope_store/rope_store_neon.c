/* rope_store for neon: rope_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/rope_store/rope_store_impls.h"
#include "ops/rope_store/rope_store_kernel.h"

const vt_impl rope_store_neon = {.name = "neon",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_NEON,
                                 .supports = rope_store_supports,
                                 .run = rope_store_run,
                                 .describe = rope_store_describe};
const vt_impl rope_store_apart_neon = {.name = "apart-neon",
                                       .device = VT_DEVICE_CPU,
                                       .isa = VT_ISA_NEON,
                                       .supports = rope_store_supports,
                                       .run = apart_run,
                                       .describe = rope_store_describe,
                                       .extra = apart_extra};
