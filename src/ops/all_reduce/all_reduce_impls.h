#ifndef VT_OPS_ALL_REDUCE_IMPLS_H
#define VT_OPS_ALL_REDUCE_IMPLS_H

#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce/all_reduce_params.h"
#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(all_reduce);

extern const vt_impl all_reduce_push, all_reduce_one_shot, all_reduce_two_shot;

/* For rows that sum in kernels of their own. */
/* Returns the row of a GPU that runs a call of this size. */
const vt_impl *all_reduce_gpu_row(const all_reduce_args *a, const vt_target *t,
                                  const vt_size *size);
/* Makes what a call that launches on the lane tells its kernel, but for `n`. */
all_reduce_params all_reduce_params_of(const all_reduce_args *a, const vt_lane *lane);

#endif
