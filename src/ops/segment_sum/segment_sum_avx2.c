/* Sums of segments for avx2: segment_sum_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/segment_sum/segment_sum_kernel.h"
