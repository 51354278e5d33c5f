#ifndef VT_OPS_RMSNORM_IMPLS_H
#define VT_OPS_RMSNORM_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(rmsnorm);
CPU_ROWS_DECLARE(add_rmsnorm);

/* Never chosen by an engine. */
extern const vt_impl add_rmsnorm_cuda_apart, add_then_norm_avx2, add_then_norm_avx512;
extern const vt_impl add_then_norm_neon;

/* Returns the number of threads among which rmsnorm.cu divides a row of more than 32 vectors of 8
 * elements. It sets the order of the row's sum. */
int32_t rmsnorm_wide_threads(int32_t vectors);

#endif
