/* Gates for neon: sigmoid_gate_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/sigmoid_gate/sigmoid_gate_impls.h"
#include "ops/sigmoid_gate/sigmoid_gate_kernel.h"

const vt_impl head_split_neon = {.name = "neon",
                                 .device = VT_DEVICE_CPU,
                                 .isa = VT_ISA_NEON,
                                 .supports = head_gate_supports,
                                 .run = head_split_run,
                                 .describe = head_gate_describe};

const vt_impl head_gate_neon = {.name = "neon",
                                .device = VT_DEVICE_CPU,
                                .isa = VT_ISA_NEON,
                                .supports = head_gate_supports,
                                .run = head_gate_run,
                                .describe = head_gate_describe};

const vt_impl row_gate_neon = {.name = "neon",
                               .device = VT_DEVICE_CPU,
                               .isa = VT_ISA_NEON,
                               .supports = row_gate_supports,
                               .run = row_gate_run,
                               .describe = row_gate_describe};
