#ifndef VT_OPS_SILU_MUL_IMPLS_H
#define VT_OPS_SILU_MUL_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(silu_mul);

#endif
