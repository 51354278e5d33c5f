#ifndef VT_OPS_SEGMENT_SUM_IMPLS_H
#define VT_OPS_SEGMENT_SUM_IMPLS_H

#include "ops/cpu_rows.h"
#include "ops/segment_sum/segment_sum.h"

CPU_ROWS_DECLARE(segment_sum);

extern const vt_impl segment_sum_cuda;

#endif
