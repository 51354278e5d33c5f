#ifndef VT_OPS_ALL_REDUCE_IMPLS_H
#define VT_OPS_ALL_REDUCE_IMPLS_H

#include "ops/op.h"

extern const vt_impl all_reduce_avx2, all_reduce_avx512, all_reduce_push, all_reduce_one_shot,
    all_reduce_two_shot;
extern const vt_impl all_reduce_neon;

#endif
