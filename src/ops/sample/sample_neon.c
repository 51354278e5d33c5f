/* Sampling for neon: sample_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/sample/sample_impls.h"
#include "ops/sample/sample_kernel.h"

const vt_impl sample_neon = {.name = "neon",
                             .device = VT_DEVICE_CPU,
                             .isa = VT_ISA_NEON,
                             .supports = sample_supports,
                             .run = sample_run,
                             .describe = sample_describe,
                             .workspace = sample_workspace};
