/* The gated norm for neon: gated_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/gated_norm/gated_norm_kernel.h"
