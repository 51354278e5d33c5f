/* RMSNorm for avx2: rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/rmsnorm/rmsnorm_kernel.h"
