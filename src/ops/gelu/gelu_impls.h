#ifndef VT_OPS_GELU_IMPLS_H
#define VT_OPS_GELU_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(gelu);

extern const vt_impl gelu_cuda;

#endif
