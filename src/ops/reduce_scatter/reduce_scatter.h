/* y = columns of x_0 + x_1 + ... + x_(n-1): sums the buffers that the ranks of a group registered
 * for a slot, and gives each rank a range of the columns of the sum. The ranges of all ranks, in
 * the order of their numbers, are all columns: all_gather of the results is all_reduce.
 *
 * Ranks add in the order of their numbers, so the parts have the bits of all_reduce without a
 * residual. Columns are divided in units of 8 where there are enough of them, so that no vector of
 * a GPU is cut; the first column of rank r of n is unit r u / n of u. */
#ifndef VT_OPS_REDUCE_SCATTER_H
#define VT_OPS_REDUCE_SCATTER_H

#include "ops/comm.h"
#include "ops/op.h"

typedef struct reduce_scatter_args {
    const vt_comm_rank *comm;
    vt_comm_slot slot;
    unsigned order;     /* the call's number among the communication calls of a step */
    const vt_tensor *x; /* [tokens, n] this rank's buffer */
    vt_tensor *y;       /* [tokens, reduce_scatter_begin(n, ranks, rank + 1) - ...(rank)] */
} reduce_scatter_args;

extern const vt_op reduce_scatter_op;
extern const vt_impl reduce_scatter_push, reduce_scatter_one_shot;

/* Returns 8 if ranks get whole vectors of 8 columns, else 1. */
static inline int32_t reduce_scatter_unit(int64_t n, int32_t ranks)
{
    return n % 8 == 0 && n / 8 >= ranks ? 8 : 1;
}

/* Returns the first column of rank r; n for r = ranks. There are at least as many columns as
 * ranks. */
static inline int64_t reduce_scatter_begin(int64_t n, int32_t ranks, int32_t r)
{
    int32_t unit = reduce_scatter_unit(n, ranks);
    return n / unit * r / ranks * unit;
}

/* Returns the bytes that come to the rank, and through the host's memory leave it, over its
 * link. */
int64_t reduce_scatter_link_bytes(const reduce_scatter_args *a, const vt_batch *batch);

#endif
