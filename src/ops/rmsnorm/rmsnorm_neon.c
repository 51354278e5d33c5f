/* RMSNorm for neon: rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/rmsnorm/rmsnorm_kernel.h"
