/* Learned positions for avx512: add_position_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/add_position/add_position_kernel.h"
