/* Attention for avx2: attention_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/attention/attention_kernel.h"
