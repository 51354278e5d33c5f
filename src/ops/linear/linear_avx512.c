/* linear with AVX-512: vpdpbusd adds four int8 products a lane (VNNI). */
#include "ops/linear/linear_x86.h"

const vt_impl linear_avx512 = {
    .name = "avx512vnni",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX512,
    .supports = x86_supports,
    .run = x86_run,
    .pack_bytes = linear_pack_bytes,
    .pack_unit = linear_pack_unit,
    .pack = linear_pack,
    .workspace = x86_workspace,
    .extra = x86_extra,
};
