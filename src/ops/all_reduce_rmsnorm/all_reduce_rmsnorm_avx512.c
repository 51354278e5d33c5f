/* The sum over ranks and its norm for avx512: all_reduce_rmsnorm_kernel.h over this instruction
 * set's rows. */
#include "ops/simd_avx512.h"

#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_kernel.h"
