/* MoE routing for neon: moe_route_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/moe/moe_impls.h"
#include "ops/moe/moe_route_kernel.h"

const vt_impl moe_route_neon = {.name = "neon",
                                .device = VT_DEVICE_CPU,
                                .isa = VT_ISA_NEON,
                                .supports = moe_route_supports,
                                .run = moe_route_run,
                                .describe = moe_route_describe,
                                .workspace = moe_route_workspace};
