/* rope_store for neon: rope_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/rope_store/rope_store_kernel.h"
