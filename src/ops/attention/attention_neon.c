/* Attention for neon: attention_kernel.h over this instruction set's vectors. */
#include "ops/simd_neon.h"

#include "ops/attention/attention_impls.h"
#include "ops/attention/attention_kernel.h"

const vt_impl attention_prefill_neon = {.name = "neon",
                                        .device = VT_DEVICE_CPU,
                                        .isa = VT_ISA_NEON,
                                        .supports = attention_supports,
                                        .run = attention_run,
                                        .describe = attention_prefill_describe,
                                        .plan = &attention_prefill_plan,
                                        .workspace = attention_workspace};
const vt_impl attention_decode_neon = {.name = "neon",
                                       .device = VT_DEVICE_CPU,
                                       .isa = VT_ISA_NEON,
                                       .supports = attention_supports,
                                       .run = attention_run,
                                       .describe = attention_decode_describe,
                                       .plan = &attention_decode_plan,
                                       .workspace = attention_workspace,
                                       .extra = attention_decode_extra};
