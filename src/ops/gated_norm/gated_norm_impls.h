#ifndef VT_OPS_GATED_NORM_GATED_NORM_IMPLS_H
#define VT_OPS_GATED_NORM_GATED_NORM_IMPLS_H

#include "ops/op.h"

extern const vt_impl gated_norm_avx2, gated_norm_avx512, gated_norm_cuda;
extern const vt_impl gated_norm_neon;

#endif
