/* all_reduce on GPUs: see all_reduce.cu. Push has no meeting and moves every byte twice. Two-shot
 * moves fewer bytes over the links from three ranks on, and has a second meeting. */
#include "ops/all_reduce/all_reduce.h"

#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/all_reduce/all_reduce_params.h"
#include "ops/comm_inbox_params.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"

typedef enum reduce_form { PUSH, ONE_SHOT, TWO_SHOT } reduce_form;
static const char *const entry_of[] = {"all_reduce_push", "all_reduce_one_shot",
                                       "all_reduce_two_shot"};
static const char *const role_of[] = {"push: each rank sends to all",
                                      "one-shot: each rank reads all",
                                      "two-shot: each rank adds a part"};

static const vt_host_plan all_reduce_plan = {.name = "the ranks' sums",
                                             .items = vt_comm_plan_items,
                                             .bytes = vt_comm_plan_bytes,
                                             .fill = vt_comm_plan_fill};

static const char *const staged_role_of[] = {NULL, "one-shot through the host: each rank reads all",
                                             "two-shot through the host: each rank adds a part"};

static bool contiguous(const vt_tensor *t)
{
    return !t || (t->dtype == VT_BF16 && t->row_stride == t->dim[1]);
}

static bool one_shot_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const all_reduce_args *a = args;
    return a->comm->group->gpu && a->comm->group->n <= COMM_GPU_RANKS && contiguous(a->x) &&
           contiguous(a->y) && contiguous(a->residual);
}

static int64_t bytes_of(const all_reduce_args *a, const vt_size *upto)
{
    return vt_size_rows(a->y, upto) * vt_dtype_row_bytes(VT_BF16, a->y->dim[1]);
}

/* Every vector has a thread of its own. */
static bool push_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_args *a = args;
    int64_t bytes = bytes_of(a, upto);
    return one_shot_supports(args, t, upto) && !a->comm->group->gpu->staged &&
           a->y->dim[1] % 8 == 0 && 2 * bytes <= COMM_INBOX_BYTES &&
           vt_comm_ctas(a->comm, bytes / 16) * (int64_t)COMM_THREADS >= bytes / 16;
}

static bool push_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t;
    const all_reduce_args *a = args;
    return bytes_of(a, upto) <= vt_comm_limits_of(a->comm->group).sum.push;
}

static bool two_shot_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_args *a = args;
    return one_shot_supports(args, t, upto) && a->comm->group->gpu->part_bytes > 0;
}

static bool one_shot_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    const all_reduce_args *a = args;
    return bytes_of(a, upto) <= vt_comm_limits_of(a->comm->group).sum.one_shot ||
           !two_shot_supports(args, t, upto);
}

static int64_t vectors_of(const all_reduce_args *a, int64_t rows, int32_t *vec)
{
    *vec = a->y->dim[1] % 8 == 0 ? 8 : 1;
    return rows * a->y->dim[1] / *vec;
}

static cuda_launch launch_of(const all_reduce_args *a, int64_t rows, reduce_form form)
{
    int32_t vec, ranks = a->comm->group->n;
    int64_t n = vectors_of(a, rows, &vec);
    return (cuda_launch){
        .spec = JIT_SPEC("all_reduce.cu", entry_of[form], {"ranks", ranks}, {"vec", vec},
                         {"early", !a->comm->group->gpu->together},
                         {"staged", a->comm->group->gpu->staged}),
        .grid = {vt_comm_ctas(a->comm, form == TWO_SHOT ? vt_ceil_div(n, ranks) : n), 1, 1},
        .threads = COMM_THREADS};
}

all_reduce_params all_reduce_params_of(const all_reduce_args *a, const vt_lane *lane)
{
    const vt_comm *g = a->comm->group;
    all_reduce_params p = {.comm = vt_comm_params(a->comm, a->order, lane),
                           .residual = a->residual ? a->residual->data : NULL,
                           .y = a->y->data};
    const void *x[COMM_GPU_RANKS];
    p.stage = vt_comm_sources(a->comm, a->slot, x);
    for (int32_t r = 0; r < g->n; r++) {
        p.x[r] = x[r];
        p.part[r] = g->gpu->part[r];
        p.inbox[r] = vt_comm_inbox(a->comm, r);
    }
    return p;
}

static vt_status launch(const all_reduce_args *a, const vt_lane *lane, reduce_form form)
{
    int32_t vec;
    all_reduce_params p = all_reduce_params_of(a, lane);
    p.n = (uint64_t)vectors_of(a, a->y->dim[0], &vec);
    cuda_launch l = launch_of(a, a->y->dim[0], form);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status push_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane, PUSH);
}

static vt_status one_shot_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane, ONE_SHOT);
}

static vt_status two_shot_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane, TWO_SHOT);
}

static void describe(const all_reduce_args *a, const vt_target *t, const vt_size *size,
                     reduce_form form, vt_cut *out)
{
    int64_t rows = vt_size_rows(a->y, size);
    int32_t vec;
    (void)vectors_of(a, rows, &vec);
    cuda_launch l = launch_of(a, rows, form);
    vt_cut_shape(out, "%d x [%lld x %lld]", a->comm->group->n, (long long)rows,
                 (long long)a->y->dim[1]);
    vt_cut_roles(out, (a->comm->group->gpu->staged ? staged_role_of : role_of)[form],
                 "in the order of the ranks");
    vt_cut_grid(out, t, &l, 2 * vec);
}

static void push_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, PUSH, out);
}

static void one_shot_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    describe(args, t, size, ONE_SHOT, out);
}

static void two_shot_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    describe(args, t, size, TWO_SHOT, out);
}

const vt_impl all_reduce_push = {CUDA_ROW("push", push, push_supports), .fixed_order = true,
                                 .suits = push_suits, .plan = &all_reduce_plan};

const vt_impl all_reduce_one_shot = {CUDA_ROW("one-shot", one_shot, one_shot_supports),
                                     .fixed_order = true, .suits = one_shot_suits,
                                     .plan = &all_reduce_plan};

const vt_impl all_reduce_two_shot = {CUDA_ROW("two-shot", two_shot, two_shot_supports),
                                     .fixed_order = true, .plan = &all_reduce_plan};

const vt_impl *all_reduce_gpu_row(const all_reduce_args *a, const vt_target *t, const vt_size *size)
{
    if (push_supports(a, t, size) && push_suits(a, t, size))
        return &all_reduce_push;
    return one_shot_suits(a, t, size) ? &all_reduce_one_shot : &all_reduce_two_shot;
}
