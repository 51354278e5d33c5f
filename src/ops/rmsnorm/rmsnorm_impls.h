#ifndef VT_OPS_RMSNORM_IMPLS_H
#define VT_OPS_RMSNORM_IMPLS_H

#include "ops/op.h"

extern const vt_impl rmsnorm_avx2, add_rmsnorm_avx2;
extern const vt_impl rmsnorm_neon, add_rmsnorm_neon;
extern const vt_impl rmsnorm_avx512, add_rmsnorm_avx512;

/* Never chosen by an engine. */
extern const vt_impl add_rmsnorm_cuda_apart, add_then_norm_avx2, add_then_norm_avx512;
extern const vt_impl add_then_norm_neon;

#endif
