#ifndef VT_OPS_GELU_IMPLS_H
#define VT_OPS_GELU_IMPLS_H

#include "ops/op.h"

extern const vt_impl gelu_avx2, gelu_avx512;

#endif
