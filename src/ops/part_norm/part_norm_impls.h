#ifndef VT_OPS_PART_NORM_IMPLS_H
#define VT_OPS_PART_NORM_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(part_norm);

extern const vt_impl part_norm_cuda;

#endif
