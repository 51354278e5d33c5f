#ifndef VT_OPS_MOE_IMPLS_H
#define VT_OPS_MOE_IMPLS_H

#include "ops/moe/moe.h"

extern const vt_impl moe_route_avx2, moe_route_avx512;
extern const vt_impl moe_route_neon;

#endif
