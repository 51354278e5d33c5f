/* LayerNorm for avx2: layernorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/layernorm/layernorm_kernel.h"
