/* linear with AVX2: vpmaddubsw and vpmaddwd instead of a dot product instruction. */
#include "ops/linear/linear_x86.h"

const vt_impl linear_avx2 = {
    .name = "avx2",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX2,
    .supports = x86_supports,
    .run = x86_run,
    .describe = x86_describe,
    .packing = &linear_x86_packing,
    .workspace = x86_workspace,
    .extra = x86_extra,
};
