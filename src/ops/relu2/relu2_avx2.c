/* The square of ReLU for avx2: relu2_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/relu2/relu2_kernel.h"
