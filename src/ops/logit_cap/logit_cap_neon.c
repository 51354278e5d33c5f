/* The cap of logits for neon: logit_cap_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/logit_cap/logit_cap_kernel.h"
