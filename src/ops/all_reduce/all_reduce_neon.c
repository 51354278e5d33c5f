/* The sum over ranks for neon: all_reduce_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/all_reduce/all_reduce_kernel.h"
