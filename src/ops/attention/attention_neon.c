/* Attention for neon: attention_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/attention/attention_kernel.h"
