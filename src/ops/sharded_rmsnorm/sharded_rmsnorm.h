/* RMSNorm of rows whose columns are divided among the ranks of a group. No rank has the sum of
 * squares of a whole row, so there are two calls with a meeting between them:
 *
 *   square_sums       sums[t, p] = sum_i x_p[t, i]^2       over this rank's columns of part p
 *   sharded_rmsnorm   y_p[t, i] = x_p[t, i] * (w_p[i] + plus_one)
 *                                 / sqrt(sum_r sums_r[t, p] / whole_p + eps)
 *
 * The parts are q and k of attention whose norms go over all heads: one meeting serves both. Each
 * rank registers its sums for a slot. All ranks add them in the order of their numbers, so they
 * have the same bits of the factor. A rank whose columns are a copy of a peer's counts none:
 * its x of square_sums is NULL, and its sum 0. fp32 inside, one rounding at the end.
 *
 * (Zhang and Sennrich, 2019, arXiv:1910.07467.) */
#ifndef VT_OPS_SHARDED_RMSNORM_H
#define VT_OPS_SHARDED_RMSNORM_H

#include "ops/comm.h"
#include "ops/op.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm_params.h"

typedef struct square_sums_args {
    const vt_tensor *x[SHARDED_PARTS]; /* [tokens, columns]; NULL: the sums are 0 */
    vt_tensor *y;                      /* [tokens, SHARDED_PARTS], f32 */
} square_sums_args;

typedef struct sharded_rmsnorm_part {
    const vt_tensor *x;      /* [tokens, columns of this rank]; NULL: there is no such part */
    const vt_tensor *weight; /* [columns of this rank], float type */
    vt_tensor *y;            /* as x; may be x */
    int64_t whole;           /* columns of all ranks, copies not counted */
} sharded_rmsnorm_part;

typedef struct sharded_rmsnorm_args {
    const vt_comm_rank *comm;
    vt_comm_slot slot;
    unsigned order;        /* the call's number among the communication calls of a step */
    const vt_tensor *sums; /* [tokens, SHARDED_PARTS], f32: this rank's buffer */
    sharded_rmsnorm_part part[SHARDED_PARTS]; /* the first is there */
    float eps;
    bool plus_one; /* weights are stored as w - 1 */
} sharded_rmsnorm_args;

extern const vt_op square_sums_op, sharded_rmsnorm_op;

/* Returns the bytes of its peers' sums, which the row brings to its rank over the links. NULL: the
 * least of any form. */
int64_t sharded_rmsnorm_link_bytes(const sharded_rmsnorm_args *a, const vt_impl *row,
                                   const vt_batch *batch);

#endif
