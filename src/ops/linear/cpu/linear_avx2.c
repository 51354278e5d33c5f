/* linear with AVX2: vpmaddubsw and vpmaddwd instead of a dot product instruction. */
#include "ops/linear/cpu/linear_simd.h"

const vt_impl linear_avx2 = {
    .name = "avx2",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX2,
    .supports = simd_supports,
    .run = simd_run,
    .ahead = simd_ahead,
    .describe = simd_describe,
    .packing = &linear_tile_packing,
    .workspace = simd_workspace,
    .extra = simd_extra,
};
