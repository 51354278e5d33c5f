/* linear with AVX-512: vpdpbusd adds four int8 products a lane (VNNI). */
#include "ops/linear/cpu/linear_simd.h"

const vt_impl linear_avx512 = {
    .name = "avx512vnni",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX512,
    .supports = simd_supports,
    .run = simd_run,
    .ahead = simd_ahead,
    .describe = simd_describe,
    .packing = &linear_tile_packing,
    .workspace = simd_workspace,
    .extra = simd_extra,
};
