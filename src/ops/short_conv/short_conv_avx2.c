/* Short convolution for avx2: short_conv_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/short_conv/short_conv_impls.h"
#include "ops/short_conv/short_conv_kernel.h"

const vt_impl short_conv_avx2 = {.name = "avx2",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_AVX2,
                                 .supports = short_conv_supports,
                                 .run = short_conv_run,
                                 .describe = short_conv_describe};
