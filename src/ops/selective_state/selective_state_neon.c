/* State spaces for neon: selective_state_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/selective_state/selective_state_kernel.h"
