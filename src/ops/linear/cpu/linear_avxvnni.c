/* linear with AVX-VNNI: vpdpbusd in vectors of 256 bits, which CPUs without AVX-512 have too. */
#include "ops/linear/cpu/linear_simd.h"

static bool avxvnni_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return vt_cpu_get()->avx_vnni && simd_supports(args, t, upto);
}

const vt_impl linear_avxvnni = {
    .name = "avxvnni",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_AVX2,
    .supports = avxvnni_supports,
    .run = simd_run,
    .ahead = simd_ahead,
    .describe = simd_describe,
    .packing = &linear_tile_packing,
    .workspace = simd_workspace,
    .extra = simd_extra,
};
