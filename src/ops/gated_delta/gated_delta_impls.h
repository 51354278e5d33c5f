#ifndef VT_OPS_GATED_DELTA_GATED_DELTA_IMPLS_H
#define VT_OPS_GATED_DELTA_GATED_DELTA_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(gated_delta);

extern const vt_impl gated_delta_cuda_decode, gated_delta_cuda_chunks, gated_delta_cuda_prefill;

#endif
