/* y = residual + (x_0 + x_1 + ... + x_(n-1)): sums the buffers that the ranks of a group registered
 * for a slot. Every rank computes all of y, in this order, so all ranks get the same bits. Each
 * rank holds the same residual.
 *
 * One-shot: each rank reads the buffers of all ranks and adds them itself. */
#ifndef VT_OPS_ALL_REDUCE_H
#define VT_OPS_ALL_REDUCE_H

#include "ops/comm.h"
#include "ops/op.h"

typedef struct all_reduce_args {
    const vt_comm_rank *comm;
    vt_comm_slot slot;
    unsigned order;            /* the call's number among the communication calls of a step */
    const vt_tensor *x;        /* [tokens, n] this rank's buffer */
    const vt_tensor *residual; /* [tokens, n] or NULL; may be y */
    vt_tensor *y;              /* [tokens, n] */
} all_reduce_args;

extern const vt_op all_reduce_op;

/* Returns the bytes that the row brings to its rank over the links. NULL: the least of any form,
 * which is the parts that the rank adds and then the sums of its peers. */
int64_t all_reduce_link_bytes(const all_reduce_args *a, const vt_impl *row, const vt_batch *batch);

#endif
