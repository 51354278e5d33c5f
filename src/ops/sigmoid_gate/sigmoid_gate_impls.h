#ifndef VT_OPS_SIGMOID_GATE_SIGMOID_GATE_IMPLS_H
#define VT_OPS_SIGMOID_GATE_SIGMOID_GATE_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(head_split);
CPU_ROWS_DECLARE(head_gate);
CPU_ROWS_DECLARE(row_gate);

extern const vt_impl head_split_cuda, head_gate_cuda, row_gate_cuda;

#endif
