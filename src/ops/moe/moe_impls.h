#ifndef VT_OPS_MOE_IMPLS_H
#define VT_OPS_MOE_IMPLS_H

#include "ops/moe/moe.h"
#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(moe_route);

#endif
