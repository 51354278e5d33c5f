/* The gated delta rule for avx512: gated_delta_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/gated_delta/gated_delta_kernel.h"
