/* Merge of attention states for avx2: merge_state_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx2.h"

#include "ops/merge_state/merge_state_impls.h"
#include "ops/merge_state/merge_state_kernel.h"

const vt_impl merge_state_avx2 = {.name = "avx2",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_AVX2,
                                  .supports = merge_state_supports,
                                  .run = merge_state_run};
