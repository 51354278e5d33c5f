/* The gated norm for neon: gated_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/gated_norm/gated_norm_impls.h"
#include "ops/gated_norm/gated_norm_kernel.h"

const vt_impl gated_norm_neon = {.name = "neon",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_NEON,
                                 .supports = gated_norm_supports,
                                 .run = gated_norm_run,
                                 .describe = gated_norm_describe};
