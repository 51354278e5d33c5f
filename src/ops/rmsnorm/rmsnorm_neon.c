/* RMSNorm for neon: rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/rmsnorm/rmsnorm_impls.h"
#include "ops/rmsnorm/rmsnorm_kernel.h"

const vt_impl rmsnorm_neon = {.name = "neon",
                              .device = VT_DEVICE_CPU,
                              .isa = VT_ISA_NEON,
                              .supports = rmsnorm_supports,
                              .run = rmsnorm_run,
                              .describe = rmsnorm_describe};
const vt_impl add_rmsnorm_neon = {.name = "neon",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_NEON,
                                  .supports = rmsnorm_supports,
                                  .run = add_rmsnorm_run,
                                  .describe = rmsnorm_describe};
const vt_impl add_then_norm_neon = {.name = "add-then-norm-neon",
                                    .device = VT_DEVICE_CPU,
                                    .isa = VT_ISA_NEON,
                                    .supports = rmsnorm_supports,
                                    .run = add_then_norm_run,
                                    .describe = rmsnorm_describe,
                                    .extra = add_then_norm_extra};
