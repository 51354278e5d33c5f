/* Sampling for avx2: sample_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/sample/sample_impls.h"
#include "ops/sample/sample_kernel.h"

const vt_impl sample_avx2 = {.name = "avx2",
                             .device = VT_DEVICE_CPU,
                             .isa = VT_ISA_AVX2,
                             .supports = sample_supports,
                             .run = sample_run,
                             .describe = sample_describe,
                             .workspace = sample_workspace};
