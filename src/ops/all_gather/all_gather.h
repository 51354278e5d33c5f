/* y[t, :] = x_0[t, :], x_1[t, :], ...: joins the columns of the buffers that the ranks of a group
 * registered for a slot. Every rank gets all of y. Ranks may have different numbers of columns. */
#ifndef VT_OPS_ALL_GATHER_H
#define VT_OPS_ALL_GATHER_H

#include "ops/comm.h"
#include "ops/op.h"

typedef struct all_gather_args {
    const vt_comm_rank *comm;
    vt_comm_slot slot;
    unsigned order;     /* the call's number among the communication calls of a step */
    const vt_tensor *x; /* [rows, its columns] this rank's buffer */
    vt_tensor *y;       /* [rows, n] */
} all_gather_args;

extern const vt_op all_gather_op;

/* Returns the bytes of its peers' columns, which come to the rank over the links. */
int64_t all_gather_link_bytes(const all_gather_args *a, const vt_batch *batch);
extern const vt_impl all_gather_cuda;

#endif
