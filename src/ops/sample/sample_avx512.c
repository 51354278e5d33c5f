/* Sampling for avx512: sample_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/sample/sample_kernel.h"
