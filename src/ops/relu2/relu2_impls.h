#ifndef VT_OPS_RELU2_IMPLS_H
#define VT_OPS_RELU2_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(relu2);

extern const vt_impl relu2_cuda;

#endif
