#ifndef VT_OPS_SIGMOID_GATE_SIGMOID_GATE_IMPLS_H
#define VT_OPS_SIGMOID_GATE_SIGMOID_GATE_IMPLS_H

#include "ops/op.h"

extern const vt_impl head_split_avx2, head_split_avx512, head_gate_avx2, head_gate_avx512,
    row_gate_avx2, row_gate_avx512, head_split_cuda, head_gate_cuda, row_gate_cuda;
extern const vt_impl head_split_neon, head_gate_neon, row_gate_neon;

#endif
