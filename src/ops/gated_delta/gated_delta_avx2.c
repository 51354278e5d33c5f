/* The gated delta rule for avx2: gated_delta_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/gated_delta/gated_delta_impls.h"
#include "ops/gated_delta/gated_delta_kernel.h"

const vt_impl gated_delta_avx2 = {.name = "avx2",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_AVX2,
                                  .supports = gated_delta_supports,
                                  .run = gated_delta_run,
                                  .describe = gated_delta_describe};
