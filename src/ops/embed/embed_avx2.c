/* The embedding lookup for avx2: embed_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/embed/embed_impls.h"
#include "ops/embed/embed_kernel.h"

const vt_impl embed_avx2 = {.name = "avx2",
                            .device = VT_DEVICE_CPU,
                            .isa = VT_ISA_AVX2,
                            .supports = embed_supports,
                            .run = embed_run,
                            .describe = embed_describe};
