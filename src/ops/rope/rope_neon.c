/* Rotary embedding for neon: rope_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/rope/rope_impls.h"
#include "ops/rope/rope_kernel.h"

const vt_impl rope_neon = {.name = "neon",
                           .device = VT_DEVICE_CPU,
                           .isa = VT_ISA_NEON,
                           .supports = rope_supports,
                           .run = rope_run,
                           .describe = rope_describe};
