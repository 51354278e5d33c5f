/* MoE routing for avx512: moe_route_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/moe/moe_route_kernel.h"
