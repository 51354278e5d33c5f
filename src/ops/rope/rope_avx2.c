/* Rotary embedding for avx2: rope_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/rope/rope_kernel.h"
