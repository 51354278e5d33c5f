/* rope_store for avx2: rope_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/rope_store/rope_store_kernel.h"
