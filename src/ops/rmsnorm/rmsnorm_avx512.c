/* RMSNorm for avx512: rmsnorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/rmsnorm/rmsnorm_kernel.h"
