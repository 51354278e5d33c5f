/* Gated activation for avx512: silu_mul_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/silu_mul/silu_mul_kernel.h"
