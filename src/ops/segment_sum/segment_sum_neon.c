/* Sums of segments for neon: segment_sum_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/segment_sum/segment_sum_kernel.h"
