/* The sum over ranks for avx2: all_reduce_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/all_reduce/all_reduce_kernel.h"
