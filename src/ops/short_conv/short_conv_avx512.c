/* Short convolution for avx512: short_conv_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/short_conv/short_conv_kernel.h"
