/* linear with AVX-512: vpdpbusd adds four int8 products a lane (VNNI). */
#include "ops/linear/linear_x86.h"

const vt_impl linear_avx512 = {
    .name = "avx512vnni",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX512,
    .supports = x86_supports,
    .run = x86_run,
    .describe = x86_describe,
    .packing = &linear_x86_packing,
    .workspace = x86_workspace,
    .extra = x86_extra,
};
