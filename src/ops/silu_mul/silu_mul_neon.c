/* Gated activation for neon: silu_mul_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/silu_mul/silu_mul_kernel.h"
