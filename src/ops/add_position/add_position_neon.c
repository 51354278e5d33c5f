/* Learned positions for neon: add_position_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/add_position/add_position_kernel.h"
