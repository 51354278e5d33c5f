/* Gated activation for avx2: silu_mul_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/silu_mul/silu_mul_kernel.h"
