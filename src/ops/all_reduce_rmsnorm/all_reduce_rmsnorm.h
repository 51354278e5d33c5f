/* s = residual + (x_0 + x_1 + ... + x_(n-1)), the sum over ranks of all_reduce, and
 *
 *   y[t, i] = s[t, i] * (w[i] + plus_one) / sqrt(mean_i(s[t, i]^2) + eps)
 *
 * its norm, in one call: what stands between two blocks of a layer that runs over ranks. s is
 * rounded before the norm reads it, and both have the order of sums of the two ops, so the call has
 * their bits (all_reduce.h, rmsnorm.h). */
#ifndef VT_OPS_ALL_REDUCE_RMSNORM_H
#define VT_OPS_ALL_REDUCE_RMSNORM_H

#include "ops/all_reduce/all_reduce.h"
#include "ops/rmsnorm/rmsnorm.h"

typedef struct all_reduce_rmsnorm_args {
    all_reduce_args sum;     /* its residual is given, its y is s; both may be one tensor */
    const vt_tensor *weight; /* [n], float type */
    vt_tensor *y;            /* [tokens, n] */
    float eps;
    bool plus_one; /* weight is stored as w - 1 */
} all_reduce_rmsnorm_args;

extern const vt_op all_reduce_rmsnorm_op;

/* Returns the bytes that the row brings to its rank over the links; NULL: the least of any form. */
int64_t all_reduce_rmsnorm_link_bytes(const all_reduce_rmsnorm_args *a, const vt_impl *row,
                                      const vt_batch *batch);

/* Returns the norm of s as a call of its own. */
static inline rmsnorm_args all_reduce_rmsnorm_norm(const all_reduce_rmsnorm_args *a)
{
    return (rmsnorm_args){
        .x = a->sum.y, .weight = a->weight, .y = a->y, .eps = a->eps, .plus_one = a->plus_one};
}

#endif
