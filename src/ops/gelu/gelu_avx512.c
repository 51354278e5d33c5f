/* GELU for avx512: gelu_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/gelu/gelu_kernel.h"
