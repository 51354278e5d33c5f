/* The gated delta rule for avx2: gated_delta_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/gated_delta/gated_delta_kernel.h"
