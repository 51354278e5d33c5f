/* linear with AVX2: vpmaddubsw and vpmaddwd instead of a dot product instruction. */
#include "ops/linear/linear_x86.h"

const vt_impl linear_avx2 = {
    .name = "avx2",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX2,
    .supports = x86_supports,
    .run = x86_run,
    .pack_bytes = linear_pack_bytes,
    .pack_unit = linear_pack_unit,
    .pack = linear_pack,
    .workspace = x86_workspace,
    .extra = x86_extra,
};
