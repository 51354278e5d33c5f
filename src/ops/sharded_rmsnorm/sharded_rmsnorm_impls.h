#ifndef VT_OPS_SHARDED_RMSNORM_IMPLS_H
#define VT_OPS_SHARDED_RMSNORM_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(square_sums);
CPU_ROWS_DECLARE(sharded_rmsnorm);

extern const vt_impl square_sums_cuda, sharded_rmsnorm_push, sharded_rmsnorm_one_shot;

#endif
