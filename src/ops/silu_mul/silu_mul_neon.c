/* Gated activation for neon: silu_mul_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/silu_mul/silu_mul_impls.h"
#include "ops/silu_mul/silu_mul_kernel.h"

const vt_impl silu_mul_neon = {.name = "neon",
                               .device = VT_DEVICE_CPU,
                               .isa = VT_ISA_NEON,
                               .supports = silu_mul_supports,
                               .run = silu_mul_run,
                               .describe = silu_mul_describe};
