/* RMSNorm over ranks for avx512: sharded_rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/sharded_rmsnorm/sharded_rmsnorm_kernel.h"
