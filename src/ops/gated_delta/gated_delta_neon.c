/* The gated delta rule for neon: gated_delta_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/gated_delta/gated_delta_impls.h"
#include "ops/gated_delta/gated_delta_kernel.h"

const vt_impl gated_delta_neon = {.name = "neon",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_NEON,
                                  .supports = gated_delta_supports,
                                  .run = gated_delta_run,
                                  .describe = gated_delta_describe};
