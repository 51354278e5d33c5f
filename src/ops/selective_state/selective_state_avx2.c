/* State spaces for avx2: selective_state_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/selective_state/selective_state_kernel.h"
