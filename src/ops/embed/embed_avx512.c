/* The embedding lookup for avx512: embed_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/embed/embed_kernel.h"
