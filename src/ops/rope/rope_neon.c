/* Rotary embedding for neon: rope_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/rope/rope_kernel.h"
