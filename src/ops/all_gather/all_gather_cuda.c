/* all_gather on GPUs: see all_gather.cu. */
#include "ops/all_gather/all_gather.h"

#include "ops/all_gather/all_gather_params.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"

static const vt_host_plan all_gather_plan = {.name = "the ranks' columns",
                                             .items = vt_comm_plan_items,
                                             .bytes = vt_comm_plan_bytes,
                                             .fill = vt_comm_plan_fill};

static bool all_gather_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const all_gather_args *a = args;
    return a->comm->group->gpu && a->comm->group->n <= COMM_GPU_RANKS && a->x->dtype == VT_F32 &&
           a->y->dtype == VT_F32 && a->x->row_stride == a->x->dim[1] &&
           a->y->row_stride == a->y->dim[1];
}

/* Returns how many columns a load has: 4 if every rank's columns are vectors of 4. */
static int32_t vector_of(const all_gather_args *a)
{
    bool wide = a->y->dim[1] % 4 == 0;
    for (int32_t r = 0; r < a->comm->group->n; r++) {
        const vt_tensor *x = a->comm->group->buffer[a->slot][r];
        wide = wide && (!x || x->dim[1] % 4 == 0); /* not all are known while programs are built */
    }
    return wide ? 4 : 1;
}

static cuda_launch launch_of(const all_gather_args *a, int64_t rows)
{
    int32_t vec = vector_of(a), ranks = a->comm->group->n;
    int64_t part = vt_ceil_div(a->y->dim[1], (int64_t)ranks * vec);
    return (cuda_launch){.spec = JIT_SPEC("all_gather.cu", "all_gather", {"ranks", ranks},
                                          {"vec", vec}, {"early", !a->comm->group->gpu->together},
                                          {"staged", a->comm->group->gpu->staged}),
                         .grid = {vt_comm_ctas(a->comm, rows * part), 1, 1},
                         .threads = COMM_THREADS};
}

static vt_status all_gather_run(const void *args, const vt_lane *lane)
{
    const all_gather_args *a = args;
    const vt_comm *g = a->comm->group;
    all_gather_params p = {.comm = vt_comm_params(a->comm, a->order, lane),
                           .n = (uint32_t)a->y->dim[1],
                           .rows = (uint32_t)a->y->dim[0],
                           .y = a->y->data};
    const void *x[COMM_GPU_RANKS];
    p.stage = vt_comm_sources(a->comm, a->slot, x);
    for (int32_t r = 0; r < g->n; r++) {
        p.x[r] = x[r];
        p.cols[r] = (uint32_t)g->buffer[a->slot][r]->dim[1];
    }
    cuda_launch l = launch_of(a, a->y->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void all_gather_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const all_gather_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows);
    vt_cut_shape(out, "%d parts of [%lld x %lld]", a->comm->group->n, (long long)rows,
                 (long long)a->y->dim[1]);
    if (a->comm->group->gpu->staged)
        vt_cut_roles(out, "through the host's memory", "");
    vt_cut_grid(out, t, &l, 4 * vector_of(a));
}

const vt_impl all_gather_cuda = {CUDA_ROW("one-shot", all_gather, all_gather_supports),
                                 .fixed_order = true, .plan = &all_gather_plan};
