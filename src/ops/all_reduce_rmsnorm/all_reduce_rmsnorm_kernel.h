/* The sum over ranks and its norm on a CPU: the rows of the two ops of this instruction set, one
 * after the other (see simd_portable.h for how this header is compiled). Workers that share rows
 * evenly normalise the rows that they have summed; else a row may be summed by several, and they
 * meet in between. */
#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_impls.h"
#include "ops/cut.h"
#include "ops/rmsnorm/rmsnorm_impls.h"
#include "ops/simd_any.h"

static vt_status all_reduce_rmsnorm_run(const void *args, const vt_lane *lane)
{
    const all_reduce_rmsnorm_args *a = args;
    rmsnorm_args norm = all_reduce_rmsnorm_norm(a);
    vt_status status = SIMD_ROW(all_reduce).run(&a->sum, lane);
    if (a->y->dim[0] % lane->n_workers != 0)
        vt_team_barrier(lane->team, lane->worker);
    return status == VT_OK ? SIMD_ROW(rmsnorm).run(&norm, lane) : status;
}

static bool all_reduce_rmsnorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_rmsnorm_args *a = args;
    rmsnorm_args norm = all_reduce_rmsnorm_norm(a);
    return SIMD_ROW(all_reduce).supports(&a->sum, t, upto) &&
           SIMD_ROW(rmsnorm).supports(&norm, t, upto);
}

/* This describes the sum, whose pieces are the smaller ones. */
static void all_reduce_rmsnorm_describe(const void *args, const vt_target *t, const vt_size *size,
                                        vt_cut *out)
{
    const all_reduce_rmsnorm_args *a = args;
    SIMD_ROW(all_reduce).describe(&a->sum, t, size, out);
    vt_cut_roles(out, "one-shot: each rank reads all, then the norm of rows",
                 "in the order of the ranks");
}

const vt_impl SIMD_ROW(all_reduce_rmsnorm) = {
    SIMD_IMPL(all_reduce_rmsnorm, all_reduce_rmsnorm_supports)};
