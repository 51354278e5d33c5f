/* RMSNorm over ranks for avx2: sharded_rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/sharded_rmsnorm/sharded_rmsnorm_kernel.h"
