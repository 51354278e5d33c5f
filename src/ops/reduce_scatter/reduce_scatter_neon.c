/* Parts of a sum for neon: reduce_scatter_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/reduce_scatter/reduce_scatter_kernel.h"
