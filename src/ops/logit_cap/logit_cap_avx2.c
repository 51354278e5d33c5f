/* The cap of logits for avx2: logit_cap_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/logit_cap/logit_cap_kernel.h"
