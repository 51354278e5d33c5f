/* Short convolution for neon: short_conv_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/short_conv/short_conv_impls.h"
#include "ops/short_conv/short_conv_kernel.h"

const vt_impl short_conv_neon = {.name = "neon",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_NEON,
                                 .supports = short_conv_supports,
                                 .run = short_conv_run,
                                 .describe = short_conv_describe};
