/* The embedding lookup for avx2: embed_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/embed/embed_kernel.h"
