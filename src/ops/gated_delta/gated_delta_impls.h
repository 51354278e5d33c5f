#ifndef VT_OPS_GATED_DELTA_GATED_DELTA_IMPLS_H
#define VT_OPS_GATED_DELTA_GATED_DELTA_IMPLS_H

#include "ops/op.h"

extern const vt_impl gated_delta_avx2, gated_delta_avx512, gated_delta_cuda_decode,
    gated_delta_cuda_prefill;
extern const vt_impl gated_delta_neon;

#endif
