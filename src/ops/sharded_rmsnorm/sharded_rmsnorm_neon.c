/* RMSNorm over ranks for neon: sharded_rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/sharded_rmsnorm/sharded_rmsnorm_kernel.h"
