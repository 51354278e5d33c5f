/* The gated norm for avx2: gated_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/gated_norm/gated_norm_impls.h"
#include "ops/gated_norm/gated_norm_kernel.h"

const vt_impl gated_norm_avx2 = {.name = "avx2",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_AVX2,
                                 .supports = gated_norm_supports,
                                 .run = gated_norm_run,
                                 .describe = gated_norm_describe};
