/* rope_store for avx2: rope_store_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/rope_store/rope_store_impls.h"
#include "ops/rope_store/rope_store_kernel.h"

const vt_impl rope_store_avx2 = {.name = "avx2",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_AVX2,
                                 .supports = rope_store_supports,
                                 .run = rope_store_run,
                                 .describe = rope_store_describe};
const vt_impl rope_store_apart_avx2 = {.name = "apart-avx2",
                                       .device = VT_DEVICE_CPU,
                                       .isa = VT_ISA_AVX2,
                                       .supports = rope_store_supports,
                                       .run = apart_run,
                                       .describe = rope_store_describe,
                                       .extra = apart_extra};
