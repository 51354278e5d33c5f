/* The embedding lookup for avx512: embed_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include <math.h>

#include "ops/embed/embed_impls.h"
#include "ops/embed/embed_kernel.h"

const vt_impl embed_avx512 = {.name = "avx512",
                              .device = VT_DEVICE_CPU,
                              .isa = VT_ISA_AVX512,
                              .supports = embed_supports,
                              .run = embed_run,
                              .describe = embed_describe};
