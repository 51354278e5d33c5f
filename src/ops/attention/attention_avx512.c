/* Attention for avx512: attention_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/attention/attention_kernel.h"
