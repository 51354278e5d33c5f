/* Parts of a sum for avx2: reduce_scatter_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/reduce_scatter/reduce_scatter_kernel.h"
