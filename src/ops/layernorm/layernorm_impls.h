#ifndef VT_OPS_LAYERNORM_IMPLS_H
#define VT_OPS_LAYERNORM_IMPLS_H

#include "ops/op.h"

extern const vt_impl layernorm_avx2, layernorm_avx512;

#endif
