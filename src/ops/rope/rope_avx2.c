/* Rotary embedding for avx2: rope_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/rope/rope_impls.h"
#include "ops/rope/rope_kernel.h"

const vt_impl rope_avx2 = {.name = "avx2",
                           .device = VT_DEVICE_CPU,
                           .isa = VT_ISA_AVX2,
                           .supports = rope_supports,
                           .run = rope_run,
                           .describe = rope_describe};
