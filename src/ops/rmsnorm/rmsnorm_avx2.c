/* RMSNorm for avx2: rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/rmsnorm/rmsnorm_impls.h"
#include "ops/rmsnorm/rmsnorm_kernel.h"

const vt_impl rmsnorm_avx2 = {.name = "avx2",
                              .device = VT_DEVICE_CPU,
                              .isa = VT_ISA_AVX2,
                              .supports = rmsnorm_supports,
                              .run = rmsnorm_run,
                              .describe = rmsnorm_describe};
const vt_impl add_rmsnorm_avx2 = {.name = "avx2",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_AVX2,
                                  .supports = rmsnorm_supports,
                                  .run = add_rmsnorm_run,
                                  .describe = rmsnorm_describe};
const vt_impl add_then_norm_avx2 = {.name = "add-then-norm-avx2",
                                    .device = VT_DEVICE_CPU,
                                    .isa = VT_ISA_AVX2,
                                    .supports = rmsnorm_supports,
                                    .run = add_then_norm_run,
                                    .describe = rmsnorm_describe,
                                    .extra = add_then_norm_extra};
