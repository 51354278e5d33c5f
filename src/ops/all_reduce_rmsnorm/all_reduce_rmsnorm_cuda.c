/* The sum over ranks and its norm on GPUs: see all_reduce_rmsnorm.cu. A CTA has a row, so the
 * kernels are for few tokens; for many, and for rows without 16-byte vectors, the two ops run one
 * after the other. On two H100, 1 x 4096: 3.1 us, apart 4.0; 64 x 4096: 6.3 and 7.7. */
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"

#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_impls.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_params.h"
#include "ops/comm_inbox_params.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rmsnorm/rmsnorm_impls.h"

static const vt_host_plan all_reduce_rmsnorm_plan = {.name = "the ranks' normed sums",
                                                     .items = vt_comm_plan_items,
                                                     .bytes = vt_comm_plan_bytes,
                                                     .fill = vt_comm_plan_fill};

static int64_t bytes_of(const all_reduce_rmsnorm_args *a, const vt_size *upto)
{
    return vt_size_rows(a->y, upto) * vt_dtype_row_bytes(VT_BF16, a->y->dim[1]);
}

static bool apart_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_rmsnorm_args *a = args;
    rmsnorm_args norm = all_reduce_rmsnorm_norm(a);
    return all_reduce_one_shot.supports(&a->sum, t, upto) &&
           rmsnorm_cuda_impl.supports(&norm, t, upto);
}

static bool one_shot_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_rmsnorm_args *a = args;
    return apart_supports(args, t, upto) && !a->sum.comm->group->gpu->staged &&
           a->y->dim[1] % 8 == 0 && a->y->row_stride == a->y->dim[1];
}

static bool one_shot_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t;
    const all_reduce_rmsnorm_args *a = args;
    return bytes_of(a, upto) <= vt_comm_limits_of(a->sum.comm->group).norm.one_shot;
}

/* Every row has a CTA of its own, all of them at the same time. */
static bool push_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_rmsnorm_args *a = args;
    int64_t rows = vt_size_rows(a->y, upto);
    return one_shot_supports(args, t, upto) && 2 * bytes_of(a, upto) <= COMM_INBOX_BYTES &&
           vt_comm_ctas(a->sum.comm, rows * COMM_THREADS) >= rows;
}

static bool push_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t;
    const all_reduce_rmsnorm_args *a = args;
    return bytes_of(a, upto) <= vt_comm_limits_of(a->sum.comm->group).norm.push;
}

static cuda_launch launch_of(const all_reduce_rmsnorm_args *a, int64_t rows, bool push)
{
    int32_t hidden = (int32_t)a->y->dim[1], threads = rmsnorm_wide_threads(hidden / 8);
    const vt_comm *g = a->sum.comm->group;
    return (cuda_launch){
        .spec = JIT_SPEC("all_reduce_rmsnorm.cu",
                         push ? "all_reduce_rmsnorm_push" : "all_reduce_rmsnorm_one_shot",
                         {"ranks", g->n}, {"hidden", hidden}, {"threads", threads},
                         {"plus_one", a->plus_one}, {"early", !g->gpu->together}),
        .grid = {vt_comm_ctas(a->sum.comm, rows * COMM_THREADS), 1, 1},
        .threads = (uint32_t)threads};
}

static vt_status launch(const all_reduce_rmsnorm_args *a, const vt_lane *lane, bool push)
{
    all_reduce_rmsnorm_params p = {.sum = all_reduce_params_of(&a->sum, lane),
                                   .weight = a->weight->data,
                                   .y = a->y->data,
                                   .rows = (uint32_t)a->y->dim[0],
                                   .eps = a->eps};
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

static vt_status apart_run(const void *args, const vt_lane *lane)
{
    const all_reduce_rmsnorm_args *a = args;
    rmsnorm_args norm = all_reduce_rmsnorm_norm(a);
    vt_status status = all_reduce_gpu_row(&a->sum, lane->target, lane->size)->run(&a->sum, lane);
    return status == VT_OK ? rmsnorm_cuda_impl.run(&norm, lane) : status;
}

static void describe(const all_reduce_rmsnorm_args *a, const vt_target *t, const vt_size *size,
                     bool push, vt_cut *out)
{
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows, push);
    vt_cut_shape(out, "%d x [%lld x %lld]", a->sum.comm->group->n, (long long)rows,
                 (long long)a->y->dim[1]);
    vt_cut_roles(out, push ? "push, then the norm: a CTA a row" : "one-shot, then the norm",
                 "in the order of the ranks");
    vt_cut_grid(out, t, &l, 16);
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

/* There are two launches; this describes the sum. */
static void apart_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const all_reduce_rmsnorm_args *a = args;
    all_reduce_gpu_row(&a->sum, t, size)->describe(&a->sum, t, size, out);
    vt_cut_roles(out, "a launch for the sum, then one for the norm", "in the order of the ranks");
}

/* The norm reads the sum from memory. */
static vt_cost apart_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const all_reduce_rmsnorm_args *a = args;
    return (vt_cost){.read = {.activations = vt_batch_bytes(a->sum.y, batch)}};
}

int64_t all_reduce_rmsnorm_link_bytes(const all_reduce_rmsnorm_args *a, const vt_impl *row,
                                      const vt_batch *batch)
{
    vt_size size = {.tokens = (int32_t)vt_batch_rows(a->y, batch)};
    const vt_impl *sum = row == NULL ? NULL
                         : row == &all_reduce_rmsnorm_apart
                             ? all_reduce_gpu_row(&a->sum, NULL, &size)
                             : &all_reduce_one_shot;
    return all_reduce_link_bytes(&a->sum, sum, batch);
}

const vt_impl all_reduce_rmsnorm_push = {CUDA_ROW("push", push, push_supports), .fixed_order = true,
                                         .suits = push_suits, .plan = &all_reduce_rmsnorm_plan};

const vt_impl all_reduce_rmsnorm_one_shot = {CUDA_ROW("one-shot", one_shot, one_shot_supports),
                                             .fixed_order = true, .suits = one_shot_suits,
                                             .plan = &all_reduce_rmsnorm_plan};

const vt_impl all_reduce_rmsnorm_apart = {CUDA_ROW("sum-then-norm", apart, apart_supports),
                                          .fixed_order = true, .plan = &all_reduce_rmsnorm_plan,
                                          .extra = apart_extra};
