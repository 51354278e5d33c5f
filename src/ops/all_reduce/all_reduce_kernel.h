/* The one-shot sum over the vector type: see simd_portable.h for how this header is compiled. A
 * piece of work is a run of REDUCE_CHUNK elements of a row: 256 bytes, so that a single token of a
 * small model has a piece for every worker. */
#include "ops/access.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/cut.h"
#include "ops/simd_any.h"

enum { REDUCE_CHUNK = 64 };

/* Sums elements [i, last) of a row. */
static inline void reduce_run(const float *const *x, int32_t n, const float *residual, float *y,
                              int64_t i, int64_t last)
{
    for (; i < last; i += VF) {
        int lanes = lanes_left(i, last);
        vf sum = vf_load_n(x[0] + i, lanes);
        for (int32_t r = 1; r < n; r++)
            sum = vf_add(sum, vf_load_n(x[r] + i, lanes));
        if (residual)
            sum = vf_add(vf_load_n(residual + i, lanes), sum);
        vf_store_n(y + i, sum, lanes);
    }
}

static vt_status all_reduce_run(const void *args, const vt_lane *lane)
{
    const all_reduce_args *a = args;
    const vt_comm *g = a->comm->group;
    const float *x[VT_MAX_RANKS];
    if (!vt_comm_meet(a->comm, a->order, lane))
        return VT_OK; /* the executor learns of a failed rank from the group */
    int64_t n = a->y->dim[1], chunks = vt_ceil_div(n, REDUCE_CHUNK), begin, end;
    vt_lane_share(lane, a->y->dim[0] * chunks, 1, &begin, &end);
    while (begin < end) {
        int64_t t = begin / chunks, first = begin % chunks,
                stop = first + (end - begin) < chunks ? first + (end - begin) : chunks,
                last = stop * REDUCE_CHUNK < n ? stop * REDUCE_CHUNK : n;
        for (int32_t r = 0; r < g->n; r++)
            x[r] = row_f32(g->buffer[a->slot][r], t);
        reduce_run(x, g->n, a->residual ? row_f32(a->residual, t) : NULL, row_f32(a->y, t),
                   first * REDUCE_CHUNK, last);
        begin += stop - first;
    }
    return VT_OK;
}

static bool all_reduce_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const all_reduce_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static void all_reduce_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const all_reduce_args *a = args;
    int64_t rows = vt_size_rows(a->y, size), n = a->y->dim[1];
    vt_cut_shape(out, "%d x [%lld x %lld]", a->comm->group->n, (long long)rows, (long long)n);
    vt_cut_roles(out, "one-shot: each rank reads all", "in the order of the ranks");
    out->tile[0] = 1;
    out->tile[1] = REDUCE_CHUNK;
    vt_cut_cpu(out, t, rows * vt_ceil_div(n, REDUCE_CHUNK), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(all_reduce) = {SIMD_IMPL(all_reduce, all_reduce_supports)};
