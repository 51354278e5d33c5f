#ifndef VT_OPS_GATED_NORM_GATED_NORM_IMPLS_H
#define VT_OPS_GATED_NORM_GATED_NORM_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(gated_norm);

extern const vt_impl gated_norm_cuda;

#endif
