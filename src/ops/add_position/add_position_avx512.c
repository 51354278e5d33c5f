/* Learned positions for avx512: add_position_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/add_position/add_position_impls.h"
#include "ops/add_position/add_position_kernel.h"

const vt_impl position_avx512 = {.name = "avx512",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_AVX512,
                                 .supports = position_supports,
                                 .run = position_run,
                                 .describe = position_describe};
