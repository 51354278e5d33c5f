/* The sum of a part over the vector type: see simd_portable.h for how this header is compiled. A
 * piece of work is a run of SCATTER_CHUNK elements of a row, as all_reduce's is. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/reduce_scatter/reduce_scatter_impls.h"
#include "ops/simd_any.h"

enum { SCATTER_CHUNK = 64 };

/* Sums elements [i, last) of the part, which begin at x[r]. */
static inline void scatter_run(const float *const *x, int32_t n, float *y, int64_t i, int64_t last)
{
    for (; i < last; i += VF) {
        int lanes = lanes_left(i, last);
        vf sum = vf_load_n(x[0] + i, lanes);
        for (int32_t r = 1; r < n; r++)
            sum = vf_add(sum, vf_load_n(x[r] + i, lanes));
        vf_store_n(y + i, sum, lanes);
    }
}

static vt_status reduce_scatter_run(const void *args, const vt_lane *lane)
{
    const reduce_scatter_args *a = args;
    const vt_comm *g = a->comm->group;
    const float *x[VT_MAX_RANKS];
    if (!vt_comm_meet(a->comm, a->order, lane))
        return VT_OK; /* the executor learns of a failed rank from the group */
    int64_t n = a->y->dim[1], chunks = vt_ceil_div(n, SCATTER_CHUNK), begin, end,
            at = reduce_scatter_begin(a->x->dim[1], g->n, a->comm->rank);
    vt_lane_share(lane, a->y->dim[0] * chunks, 1, &begin, &end);
    while (begin < end) {
        int64_t t = begin / chunks, first = begin % chunks,
                stop = first + (end - begin) < chunks ? first + (end - begin) : chunks,
                last = stop * SCATTER_CHUNK < n ? stop * SCATTER_CHUNK : n;
        for (int32_t r = 0; r < g->n; r++)
            x[r] = row_f32(g->buffer[a->slot][r], t) + at;
        scatter_run(x, g->n, row_f32(a->y, t), first * SCATTER_CHUNK, last);
        begin += stop - first;
    }
    return VT_OK;
}

static bool reduce_scatter_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const reduce_scatter_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static void reduce_scatter_describe(const void *args, const vt_target *t, const vt_size *size,
                                    vt_cut *out)
{
    const reduce_scatter_args *a = args;
    int64_t rows = vt_size_rows(a->y, size), n = a->y->dim[1];
    vt_cut_shape(out, "%d x [%lld x %lld of %lld]", a->comm->group->n, (long long)rows,
                 (long long)n, (long long)a->x->dim[1]);
    vt_cut_roles(out, "each rank reads its part of all", "in the order of the ranks");
    out->tile[0] = 1;
    out->tile[1] = SCATTER_CHUNK;
    vt_cut_cpu(out, t, rows * vt_ceil_div(n, SCATTER_CHUNK), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(reduce_scatter) = {SIMD_IMPL(reduce_scatter, reduce_scatter_supports)};
