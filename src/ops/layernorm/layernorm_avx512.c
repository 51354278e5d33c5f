/* LayerNorm for avx512: layernorm_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include <math.h>

#include "ops/layernorm/layernorm_impls.h"
#include "ops/layernorm/layernorm_kernel.h"

const vt_impl layernorm_avx512 = {.name = "avx512",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_AVX512,
                                  .supports = layernorm_supports,
                                  .run = layernorm_run,
                                  .describe = layernorm_describe};
