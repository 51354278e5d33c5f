/* Short convolution for neon: short_conv_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/short_conv/short_conv_kernel.h"
