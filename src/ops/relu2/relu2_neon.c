/* The square of ReLU for neon: relu2_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/relu2/relu2_kernel.h"
