/* GELU for neon: gelu_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/gelu/gelu_kernel.h"
