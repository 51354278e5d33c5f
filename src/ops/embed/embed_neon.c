/* The embedding lookup for neon: embed_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/embed/embed_kernel.h"
