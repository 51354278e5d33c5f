#ifndef VT_OPS_SILU_MUL_IMPLS_H
#define VT_OPS_SILU_MUL_IMPLS_H

#include "ops/op.h"

extern const vt_impl silu_mul_avx2, silu_mul_avx512;
extern const vt_impl silu_mul_neon;

#endif
