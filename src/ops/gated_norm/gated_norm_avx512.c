/* The gated norm for avx512: gated_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/gated_norm/gated_norm_kernel.h"
