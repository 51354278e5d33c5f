/* sum[s, :] + rest[s, :] = the sum of x[r, :] over the rows r of segment s
 *
 * A segment is the rows of one sequence of the batch, which follow each other; sequences without
 * rows have none, and segments are numbered in the order of their sequences. Sums are made in
 * double precision; `sum` is the nearest fp32 number, and `rest` what it leaves out, which
 * makes 48 bits. So the sums of a prompt's chunks add up to its sum but for the last of them. */
#ifndef VT_OPS_SEGMENT_SUM_H
#define VT_OPS_SEGMENT_SUM_H

#include "ops/op.h"

typedef struct segment_sum_args {
    const vt_batch *batch; /* row_token, seq_of */
    const vt_tensor *x;    /* [rows, hidden] */
    vt_tensor *sum, *rest; /* [rows, hidden] F32; of their rows those of segments are written */
} segment_sum_args;

extern const vt_op segment_sum_op;

#endif
