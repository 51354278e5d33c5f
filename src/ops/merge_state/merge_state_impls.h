#ifndef VT_OPS_MERGE_STATE_IMPLS_H
#define VT_OPS_MERGE_STATE_IMPLS_H

#include "ops/op.h"

extern const vt_impl merge_state_avx2, merge_state_avx512;

#endif
