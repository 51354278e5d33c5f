#ifndef VT_OPS_LOGIT_CAP_IMPLS_H
#define VT_OPS_LOGIT_CAP_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(logit_cap);

extern const vt_impl logit_cap_cuda;

#endif
