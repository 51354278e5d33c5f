/* GELU for avx512: gelu_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include <math.h>

#include "ops/gelu/gelu_impls.h"
#include "ops/gelu/gelu_kernel.h"

const vt_impl gelu_avx512 = {.name = "avx512",
                             .device = VT_DEVICE_CPU,
                             .isa = VT_ISA_AVX512,
                             .supports = gelu_supports,
                             .run = gelu_run,
                             .describe = gelu_describe};
