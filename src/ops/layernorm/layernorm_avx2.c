/* LayerNorm for avx2: layernorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include <math.h>

#include "ops/layernorm/layernorm_impls.h"
#include "ops/layernorm/layernorm_kernel.h"

const vt_impl layernorm_avx2 = {.name = "avx2",
                                .device = VT_DEVICE_CPU,
                                .isa = VT_ISA_AVX2,
                                .supports = layernorm_supports,
                                .run = layernorm_run,
                                .describe = layernorm_describe};
