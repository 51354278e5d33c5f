/* The sum over ranks for avx512: all_reduce_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/all_reduce/all_reduce_kernel.h"

const vt_impl all_reduce_avx512 = {.name = "avx512",
                                   .device = VT_DEVICE_CPU,
                                   .isa = VT_ISA_AVX512,
                                   .supports = all_reduce_supports,
                                   .run = all_reduce_run,
                                   .describe = all_reduce_describe};
