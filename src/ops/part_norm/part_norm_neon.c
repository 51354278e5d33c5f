/* Norms of parts of rows for neon: part_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/part_norm/part_norm_kernel.h"
