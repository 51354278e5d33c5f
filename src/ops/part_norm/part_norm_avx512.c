/* Norms of parts of rows for avx512: part_norm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/part_norm/part_norm_kernel.h"
