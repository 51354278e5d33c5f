#ifndef VT_OPS_SHORT_CONV_IMPLS_H
#define VT_OPS_SHORT_CONV_IMPLS_H

#include "ops/op.h"

extern const vt_impl short_conv_avx2, short_conv_avx512, short_conv_cuda;
extern const vt_impl short_conv_neon;

#endif
