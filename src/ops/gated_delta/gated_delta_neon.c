/* The gated delta rule for neon: gated_delta_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/gated_delta/gated_delta_kernel.h"
