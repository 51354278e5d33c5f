#ifndef VT_OPS_ALL_REDUCE_RMSNORM_IMPLS_H
#define VT_OPS_ALL_REDUCE_RMSNORM_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(all_reduce_rmsnorm);

extern const vt_impl all_reduce_rmsnorm_push, all_reduce_rmsnorm_one_shot, all_reduce_rmsnorm_apart;

#endif
