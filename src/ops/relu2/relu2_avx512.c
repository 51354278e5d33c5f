/* The square of ReLU for avx512: relu2_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/relu2/relu2_kernel.h"
