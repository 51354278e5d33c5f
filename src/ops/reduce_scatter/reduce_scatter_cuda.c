/* reduce_scatter on GPUs: see reduce_scatter.cu. */
#include "ops/reduce_scatter/reduce_scatter.h"

#include "ops/comm_inbox_params.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/reduce_scatter/reduce_scatter_params.h"

enum { MOST_PUSH = 64 << 10 }; /* bytes of a part, of two ranks; more ranks push too often */

static const vt_host_plan reduce_scatter_plan = {.name = "the ranks' parts of sums",
                                                 .items = vt_comm_plan_items,
                                                 .bytes = vt_comm_plan_bytes,
                                                 .fill = vt_comm_plan_fill};

static bool contiguous(const vt_tensor *t)
{
    return t->dtype == VT_BF16 && t->row_stride == t->dim[1];
}

static int32_t unit_of(const reduce_scatter_args *a)
{
    return reduce_scatter_unit(a->x->dim[1], a->comm->group->n);
}

/* Returns the vectors of the largest part of a rank, so that all ranks have the same grid. */
static int64_t most_vectors(const reduce_scatter_args *a, int64_t rows)
{
    return rows * vt_ceil_div(a->x->dim[1] / unit_of(a), a->comm->group->n);
}

static bool one_shot_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const reduce_scatter_args *a = args;
    return a->comm->group->gpu && a->comm->group->n <= COMM_GPU_RANKS && contiguous(a->x) &&
           contiguous(a->y);
}

/* Every vector has a thread of its own. */
static bool push_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const reduce_scatter_args *a = args;
    if (!one_shot_supports(args, t, upto) || a->comm->group->gpu->staged || unit_of(a) != 8)
        return false;
    int64_t vectors = most_vectors(a, vt_size_rows(a->y, upto));
    return 2 * 16 * vectors <= COMM_INBOX_BYTES &&
           vt_comm_ctas(a->comm, vectors) * (int64_t)COMM_THREADS >= vectors;
}

static bool push_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t;
    const reduce_scatter_args *a = args;
    return a->comm->group->n <= 2 && 16 * most_vectors(a, vt_size_rows(a->y, upto)) <= MOST_PUSH;
}

static cuda_launch launch_of(const reduce_scatter_args *a, int64_t rows, bool push)
{
    int32_t ranks = a->comm->group->n;
    return (cuda_launch){.spec = JIT_SPEC("reduce_scatter.cu",
                                          push ? "reduce_scatter_push" : "reduce_scatter_one_shot",
                                          {"ranks", ranks}, {"vec", unit_of(a)},
                                          {"early", !a->comm->group->gpu->together},
                                          {"staged", a->comm->group->gpu->staged}),
                         .grid = {vt_comm_ctas(a->comm, most_vectors(a, rows)), 1, 1},
                         .threads = COMM_THREADS};
}

static vt_status launch(const reduce_scatter_args *a, const vt_lane *lane, bool push)
{
    int32_t ranks = a->comm->group->n;
    reduce_scatter_params p = {.comm = vt_comm_params(a->comm, a->order, lane),
                               .rows = (uint32_t)a->y->dim[0],
                               .y = a->y->data};
    const void *x[COMM_GPU_RANKS];
    p.stage = vt_comm_sources(a->comm, a->slot, x);
    for (int32_t r = 0; r < ranks; r++) {
        p.x[r] = x[r];
        p.inbox[r] = vt_comm_inbox(a->comm, r);
    }
    for (int32_t r = 0; r <= ranks; r++)
        p.first[r] = (uint32_t)reduce_scatter_begin(a->x->dim[1], ranks, r);
    cuda_launch l = launch_of(a, a->y->dim[0], push);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status push_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane, true);
}

static vt_status one_shot_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane, false);
}

static void describe(const reduce_scatter_args *a, const vt_target *t, const vt_size *size,
                     bool push, vt_cut *out)
{
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows, push);
    vt_cut_shape(out, "%d x [%lld x %lld of %lld]", a->comm->group->n, (long long)rows,
                 (long long)a->y->dim[1], (long long)a->x->dim[1]);
    vt_cut_roles(out,
                 push                          ? "push: each rank sends each its part"
                 : a->comm->group->gpu->staged ? "through the host: each rank reads its part"
                                               : "each rank reads its part of all",
                 "in the order of the ranks");
    vt_cut_grid(out, t, &l, 2 * unit_of(a));
}

static void push_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, true, out);
}

static void one_shot_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    describe(args, t, size, false, out);
}

const vt_impl reduce_scatter_push = {CUDA_ROW("push", push, push_supports), .fixed_order = true,
                                     .suits = push_suits, .plan = &reduce_scatter_plan};

const vt_impl reduce_scatter_one_shot = {CUDA_ROW("one-shot", one_shot, one_shot_supports),
                                         .fixed_order = true, .plan = &reduce_scatter_plan};
