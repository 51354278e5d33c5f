/* Sampling for avx2: sample_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/sample/sample_kernel.h"
