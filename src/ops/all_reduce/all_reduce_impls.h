#ifndef VT_OPS_ALL_REDUCE_IMPLS_H
#define VT_OPS_ALL_REDUCE_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(all_reduce);

extern const vt_impl all_reduce_push, all_reduce_one_shot, all_reduce_two_shot;

#endif
