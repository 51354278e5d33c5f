/* The sum over ranks for avx2: all_reduce_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/all_reduce/all_reduce_kernel.h"

const vt_impl all_reduce_avx2 = {.name = "avx2",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_AVX2,
                                 .supports = all_reduce_supports,
                                 .run = all_reduce_run,
                                 .describe = all_reduce_describe};
