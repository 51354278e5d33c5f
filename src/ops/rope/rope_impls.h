#ifndef VT_OPS_ROPE_IMPLS_H
#define VT_OPS_ROPE_IMPLS_H

#include "ops/op.h"

extern const vt_impl rope_avx2, rope_avx512;
extern const vt_impl rope_neon;

/* Never chosen by an engine. */
extern const vt_impl rope_cuda_pairs;

#endif
