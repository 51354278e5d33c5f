/* Rotary embedding for avx512: rope_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include <math.h>

#include "ops/rope/rope_impls.h"
#include "ops/rope/rope_kernel.h"

const vt_impl rope_avx512 = {.name = "avx512",
                             .device = VT_DEVICE_CPU,
                             .isa = VT_ISA_AVX512,
                             .supports = rope_supports,
                             .run = rope_run,
                             .describe = rope_describe};
