/* GELU for avx2: gelu_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/gelu/gelu_impls.h"
#include "ops/gelu/gelu_kernel.h"

const vt_impl gelu_avx2 = {.name = "avx2",
                           .device = VT_DEVICE_CPU,
                           .isa = VT_ISA_AVX2,
                           .supports = gelu_supports,
                           .run = gelu_run,
                           .describe = gelu_describe};
