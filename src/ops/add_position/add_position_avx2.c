/* Learned positions for avx2: add_position_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/add_position/add_position_kernel.h"
