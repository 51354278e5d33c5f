/* RMSNorm over ranks over the vector type: see simd_portable.h for how this header is compiled.
 * Rows are dealt out to the workers, in both calls alike. One worker sums a row as rmsnorm does. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/rmsnorm/rmsnorm_row.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm_impls.h"

static vt_status square_sums_run(const void *args, const vt_lane *lane)
{
    const square_sums_args *a = args;
    int64_t begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t k = 0; k < SHARDED_PARTS; k++)
            row_f32(a->y, t)[k] = a->x[k] ? square_sum(row_f32(a->x[k], t), a->x[k]->dim[1]) : 0;
    return VT_OK;
}

static vt_status sharded_rmsnorm_run(const void *args, const vt_lane *lane)
{
    const sharded_rmsnorm_args *a = args;
    const vt_comm *g = a->comm->group;
    int64_t begin, end;
    if (!vt_comm_meet(a->comm, a->order, lane))
        return VT_OK; /* the executor learns of a failed rank from the group */
    vt_lane_share(lane, a->sums->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t k = 0; k < SHARDED_PARTS && a->part[k].x; k++) {
            const sharded_rmsnorm_part *p = &a->part[k];
            float sum = 0;
            for (int32_t r = 0; r < g->n; r++)
                sum += row_f32(g->buffer[a->slot][r], t)[k];
            scale_row(row_f32(p->x, t), p->weight, a->plus_one ? 1 : 0,
                      1.0f / sqrtf(sum / (float)p->whole + a->eps), row_f32(p->y, t), p->x->dim[1]);
        }
    return VT_OK;
}

static bool square_sums_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const square_sums_args *a = args;
    bool good = a->y->dtype == VT_F32;
    for (int32_t k = 0; k < SHARDED_PARTS; k++)
        good = good && (!a->x[k] || a->x[k]->dtype == VT_F32);
    return good;
}

static bool sharded_rmsnorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const sharded_rmsnorm_args *a = args;
    bool good = a->sums->dtype == VT_F32;
    for (int32_t k = 0; k < SHARDED_PARTS && a->part[k].x; k++)
        good = good && a->part[k].x->dtype == VT_F32 && a->part[k].y->dtype == VT_F32 &&
               dtype_is_float(a->part[k].weight->dtype);
    return good;
}

static void square_sums_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const square_sums_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld and %lld", (long long)rows,
                 (long long)(a->x[0] ? a->x[0]->dim[1] : 0),
                 (long long)(a->x[1] ? a->x[1]->dim[1] : 0));
    vt_cut_cpu(out, t, rows, (int32_t)(VF * sizeof(float)));
}

static void sharded_rmsnorm_describe(const void *args, const vt_target *t, const vt_size *size,
                                     vt_cut *out)
{
    const sharded_rmsnorm_args *a = args;
    int64_t rows = vt_size_rows(a->sums, size);
    vt_cut_shape(out, "%lld rows of %lld and %lld", (long long)rows,
                 (long long)a->part[0].x->dim[1],
                 (long long)(a->part[1].x ? a->part[1].x->dim[1] : 0));
    vt_cut_roles(out, "each rank reads the sums of all", "in the order of the ranks");
    vt_cut_cpu(out, t, rows, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(square_sums) = {SIMD_IMPL(square_sums, square_sums_supports)};
const vt_impl SIMD_ROW(sharded_rmsnorm) = {SIMD_IMPL(sharded_rmsnorm, sharded_rmsnorm_supports)};
