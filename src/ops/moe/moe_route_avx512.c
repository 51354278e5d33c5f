/* MoE routing for avx512: moe_route_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/moe/moe_impls.h"
#include "ops/moe/moe_route_kernel.h"

const vt_impl moe_route_avx512 = {.name = "avx512",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_AVX512,
                                  .supports = moe_route_supports,
                                  .run = moe_route_run,
                                  .describe = moe_route_describe,
                                  .workspace = moe_route_workspace};
