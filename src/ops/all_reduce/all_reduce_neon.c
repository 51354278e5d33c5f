/* The sum over ranks for neon: all_reduce_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/all_reduce/all_reduce_kernel.h"

const vt_impl all_reduce_neon = {.name = "neon",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_NEON,
                                 .supports = all_reduce_supports,
                                 .run = all_reduce_run,
                                 .describe = all_reduce_describe};
