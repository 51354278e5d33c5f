#ifndef VT_OPS_ADD_POSITION_IMPLS_H
#define VT_OPS_ADD_POSITION_IMPLS_H

#include "ops/add_position/add_position.h"
#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(position);

extern const vt_impl position_cuda;

/* Returns the row of `types` for token t. */
static inline int64_t position_type(const vt_batch *b, int64_t t)
{
    int32_t second = b->second ? b->second[b->seq_of[t]] : 0;
    return second > 0 && b->position[t] >= second;
}

#endif
