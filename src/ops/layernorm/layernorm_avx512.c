/* LayerNorm for avx512: layernorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/layernorm/layernorm_kernel.h"
