/* Sampling for avx512: sample_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/sample/sample_impls.h"
#include "ops/sample/sample_kernel.h"

const vt_impl sample_avx512 = {.name = "avx512",
                               .device = VT_DEVICE_CPU,
                               .isa = VT_ISA_AVX512,
                               .supports = sample_supports,
                               .run = sample_run,
                               .describe = sample_describe,
                               .workspace = sample_workspace};
