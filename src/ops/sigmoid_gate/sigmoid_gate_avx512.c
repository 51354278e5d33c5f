/* Gates for avx512: sigmoid_gate_kernel.h over this instruction set's vectors. */
#include "ops/simd_avx512.h"

#include "ops/sigmoid_gate/sigmoid_gate_impls.h"
#include "ops/sigmoid_gate/sigmoid_gate_kernel.h"

const vt_impl head_split_avx512 = {.name = "avx512",
                                   .device = VT_DEVICE_CPU,
                                   .isa = VT_ISA_AVX512,
                                   .supports = head_gate_supports,
                                   .run = head_split_run,
                                   .describe = head_gate_describe};

const vt_impl head_gate_avx512 = {.name = "avx512",
                                  .device = VT_DEVICE_CPU,
                                  .isa = VT_ISA_AVX512,
                                  .supports = head_gate_supports,
                                  .run = head_gate_run,
                                  .describe = head_gate_describe};

const vt_impl row_gate_avx512 = {.name = "avx512",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_AVX512,
                                 .supports = row_gate_supports,
                                 .run = row_gate_run,
                                 .describe = row_gate_describe};
