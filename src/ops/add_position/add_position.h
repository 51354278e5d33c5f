/* x[t, :] += table[position[t] + first, :] + types[type(t), :]
 *
 * Learned positions, and the vectors that tell a sequence's two texts apart: type(t) is 1 from the
 * position where the second text begins (vt_batch.second), else 0. */
#ifndef VT_OPS_ADD_POSITION_H
#define VT_OPS_ADD_POSITION_H

#include "ops/op.h"

typedef struct add_position_args {
    const vt_batch *batch;  /* position, seq_of, second */
    const vt_tensor *table; /* [positions, hidden], float type */
    const vt_tensor *types; /* [1 or 2, hidden], float type; NULL: none */
    int32_t first;          /* the table's row of position 0 */
    vt_tensor *x;           /* [tokens, hidden] */
} add_position_args;

extern const vt_op add_position_op;

#endif
