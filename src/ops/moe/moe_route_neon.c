/* MoE routing for neon: moe_route_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/moe/moe_route_kernel.h"
