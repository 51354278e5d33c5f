/* LayerNorm for neon: layernorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/layernorm/layernorm_kernel.h"
