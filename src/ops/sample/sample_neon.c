/* Sampling for neon: sample_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/sample/sample_kernel.h"
