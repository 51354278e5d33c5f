/* The sum over ranks and its norm for neon: all_reduce_rmsnorm_kernel.h over this instruction set's
 * rows. */
#include "ops/simd_neon.h"

#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_kernel.h"
