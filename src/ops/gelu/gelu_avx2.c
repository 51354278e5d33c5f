/* GELU for avx2: gelu_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/gelu/gelu_kernel.h"
