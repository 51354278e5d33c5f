/* MoE routing for avx2: moe_route_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/moe/moe_route_kernel.h"
