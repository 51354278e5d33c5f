#ifndef VT_OPS_ROPE_IMPLS_H
#define VT_OPS_ROPE_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(rope);

/* Never chosen by an engine. */
extern const vt_impl rope_cuda_pairs;

#endif
