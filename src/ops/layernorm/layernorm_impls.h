#ifndef VT_OPS_LAYERNORM_IMPLS_H
#define VT_OPS_LAYERNORM_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(layernorm);

extern const vt_impl layernorm_cuda;

#endif
