#ifndef VT_OPS_SHORT_CONV_IMPLS_H
#define VT_OPS_SHORT_CONV_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(short_conv);

extern const vt_impl short_conv_cuda_runs, short_conv_cuda;

#endif
