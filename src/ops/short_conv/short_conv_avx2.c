/* Short convolution for avx2: short_conv_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/short_conv/short_conv_kernel.h"
