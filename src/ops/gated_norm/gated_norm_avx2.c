/* The gated norm for avx2: gated_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/gated_norm/gated_norm_kernel.h"
