/* The embedding lookup for neon: embed_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include <math.h>

#include "ops/embed/embed_impls.h"
#include "ops/embed/embed_kernel.h"

const vt_impl embed_neon = {.name = "neon",
                            .device = VT_DEVICE_CPU,
                            .isa = VT_ISA_NEON,
                            .supports = embed_supports,
                            .run = embed_run,
                            .describe = embed_describe};
