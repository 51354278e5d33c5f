#ifndef VT_OPS_HEAD_LINEAR_HEAD_LINEAR_IMPLS_H
#define VT_OPS_HEAD_LINEAR_HEAD_LINEAR_IMPLS_H

#include "ops/op.h"

extern const vt_impl head_linear_cuda;

#endif
