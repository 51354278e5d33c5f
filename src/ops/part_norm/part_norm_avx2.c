/* Norms of parts of rows for avx2: part_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/part_norm/part_norm_kernel.h"
