#ifndef VT_OPS_SELECTIVE_STATE_SELECTIVE_STATE_IMPLS_H
#define VT_OPS_SELECTIVE_STATE_SELECTIVE_STATE_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(selective_state);

extern const vt_impl selective_state_cuda_decode, selective_state_cuda_prefill;

#endif
