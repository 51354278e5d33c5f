/* Rotary embedding for avx512: rope_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/rope/rope_kernel.h"
