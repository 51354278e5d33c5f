#ifndef VT_OPS_REDUCE_SCATTER_IMPLS_H
#define VT_OPS_REDUCE_SCATTER_IMPLS_H

#include "ops/cpu_rows.h"
#include "ops/reduce_scatter/reduce_scatter.h"

CPU_ROWS_DECLARE(reduce_scatter);

#endif
