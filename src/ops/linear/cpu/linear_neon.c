/* linear with NEON: sdot adds four int8 products a lane. CPUs before ARMv8.2 lack it and take the
 * portable row. */
#include "ops/linear/cpu/linear_simd.h"

static bool neon_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return vt_cpu_get()->dotprod && simd_supports(args, t, upto);
}

const vt_impl linear_neon = {
    .name = "neon",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_NEON,
    .supports = neon_supports,
    .run = simd_run,
    .ahead = simd_ahead,
    .describe = simd_describe,
    .packing = &linear_tile_packing,
    .workspace = simd_workspace,
    .extra = simd_extra,
};
