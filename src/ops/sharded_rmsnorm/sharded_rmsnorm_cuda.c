/* RMSNorm over ranks on GPUs: see square_sums.cu and sharded_rmsnorm.cu. */
#include "ops/comm_inbox_params.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm_impls.h"

enum { WARPS = COMM_THREADS / 32, PACKET_BYTES = 16 };

/* ---- square_sums ---- */

static bool square_sums_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const square_sums_args *a = args;
    bool good = a->y->dtype == VT_F32 && a->y->row_stride == SHARDED_PARTS;
    for (int32_t k = 0; k < SHARDED_PARTS; k++)
        good = good && (!a->x[k] || a->x[k]->dtype == VT_BF16);
    return good;
}

static cuda_launch sums_launch(const square_sums_args *a, int64_t rows, int32_t *vec)
{
    *vec = 8;
    for (int32_t k = 0; k < SHARDED_PARTS; k++)
        if (a->x[k] && !cuda_vectors_of_8(a->x[k]->dim[1], a->x[k]->row_stride))
            *vec = 1;
    return (cuda_launch){.spec = JIT_SPEC("square_sums.cu", "square_sums", {"vec", *vec}),
                         .grid = {(uint32_t)rows, SHARDED_PARTS, 1},
                         .threads = SQUARE_SUMS_THREADS};
}

static vt_status square_sums_run(const void *args, const vt_lane *lane)
{
    const square_sums_args *a = args;
    int32_t vec;
    square_sums_params p = {.y = a->y->data};
    for (int32_t k = 0; k < SHARDED_PARTS; k++)
        if (a->x[k]) {
            p.x[k] = a->x[k]->data;
            p.cols[k] = (uint32_t)a->x[k]->dim[1];
            p.stride[k] = (uint32_t)a->x[k]->row_stride;
        }
    cuda_launch l = sums_launch(a, a->y->dim[0], &vec);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void square_sums_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const square_sums_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    int32_t vec;
    cuda_launch l = sums_launch(a, rows, &vec);
    vt_cut_shape(out, "%lld rows of %lld and %lld", (long long)rows,
                 (long long)(a->x[0] ? a->x[0]->dim[1] : 0),
                 (long long)(a->x[1] ? a->x[1]->dim[1] : 0));
    vt_cut_grid(out, t, &l, 2 * vec);
}

const vt_impl square_sums_cuda = {CUDA_ROW("rows", square_sums, square_sums_supports),
                                  .fixed_order = true};

/* ---- sharded_rmsnorm ---- */

static const vt_host_plan sharded_rmsnorm_plan = {.name = "the ranks' sums of squares",
                                                  .items = vt_comm_plan_items,
                                                  .bytes = vt_comm_plan_bytes,
                                                  .fill = vt_comm_plan_fill};

static bool part_supports(const sharded_rmsnorm_part *p)
{
    return !p->x ||
           (p->x->dtype == VT_BF16 && p->y->dtype == VT_BF16 && p->weight->dtype == VT_F32);
}

static bool one_shot_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const sharded_rmsnorm_args *a = args;
    return a->comm->group->gpu && a->comm->group->n <= COMM_GPU_RANKS && a->sums->dtype == VT_F32 &&
           a->sums->row_stride == SHARDED_PARTS && part_supports(&a->part[0]) &&
           part_supports(&a->part[1]);
}

/* Every row is a packet. */
static bool push_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const sharded_rmsnorm_args *a = args;
    return one_shot_supports(args, t, upto) && !a->comm->group->gpu->staged &&
           vt_size_rows(a->sums, upto) <= COMM_INBOX_BYTES / PACKET_BYTES;
}

static bool has_vectors(const sharded_rmsnorm_part *p)
{
    return !p->x ||
           (cuda_vectors_of_8(p->x->dim[1], p->x->row_stride) && p->y->row_stride % 8 == 0);
}

static int32_t vector_of(const sharded_rmsnorm_args *a)
{
    return has_vectors(&a->part[0]) && has_vectors(&a->part[1]) ? 8 : 1;
}

/* Returns how many warps share a row: few enough that a lane has two vectors of the wider part. */
static uint32_t warps_of(const sharded_rmsnorm_args *a)
{
    int64_t cols = a->part[0].x->dim[1], warps = 1;
    if (a->part[1].x && a->part[1].x->dim[1] > cols)
        cols = a->part[1].x->dim[1];
    while (warps < WARPS && warps * 2 * 32 * vector_of(a) < cols)
        warps *= 2;
    return (uint32_t)warps;
}

static cuda_launch launch_of(const sharded_rmsnorm_args *a, int64_t rows, bool push)
{
    const vt_comm *g = a->comm->group;
    return (cuda_launch){
        .spec = JIT_SPEC("sharded_rmsnorm.cu",
                         push ? "sharded_rmsnorm_push" : "sharded_rmsnorm_one_shot",
                         {"ranks", g->n}, {"vec", vector_of(a)}, {"plus_one", a->plus_one},
                         {"early", !g->gpu->together}, {"staged", g->gpu->staged}),
        .grid = {vt_comm_ctas(a->comm, rows * COMM_THREADS), 1, 1},
        .threads = COMM_THREADS};
}

static sharded_part_params params_of(const sharded_rmsnorm_part *p)
{
    if (!p->x)
        return (sharded_part_params){0};
    return (sharded_part_params){.x = p->x->data,
                                 .weight = p->weight->data,
                                 .y = p->y->data,
                                 .cols = (uint32_t)p->x->dim[1],
                                 .x_stride = (uint32_t)p->x->row_stride,
                                 .y_stride = (uint32_t)p->y->row_stride,
                                 .whole = (float)p->whole};
}

static vt_status launch(const sharded_rmsnorm_args *a, const vt_lane *lane, bool push)
{
    const vt_comm *g = a->comm->group;
    const void *sums[COMM_GPU_RANKS];
    sharded_rmsnorm_params p = {.comm = vt_comm_params(a->comm, a->order, lane),
                                .part = {params_of(&a->part[0]), params_of(&a->part[1])},
                                .rows = (uint32_t)a->sums->dim[0],
                                .warps = warps_of(a),
                                .eps = a->eps};
    p.stage = vt_comm_sources(a->comm, a->slot, sums);
    for (int32_t r = 0; r < g->n; r++) {
        p.sums[r] = sums[r];
        p.inbox[r] = vt_comm_inbox(a->comm, r);
    }
    cuda_launch l = launch_of(a, a->sums->dim[0], push);
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

static void describe(const sharded_rmsnorm_args *a, const vt_target *t, const vt_size *size,
                     bool push, vt_cut *out)
{
    int64_t rows = vt_size_rows(a->sums, size);
    cuda_launch l = launch_of(a, rows, push);
    vt_cut_shape(out, "%lld rows of %lld and %lld", (long long)rows,
                 (long long)a->part[0].x->dim[1],
                 (long long)(a->part[1].x ? a->part[1].x->dim[1] : 0));
    vt_cut_roles(out,
                 push                          ? "push: each rank sends its sums to all"
                 : a->comm->group->gpu->staged ? "each rank reads the sums of all through the host"
                                               : "each rank reads the sums of all",
                 "in the order of the ranks");
    vt_cut_grid(out, t, &l, 2 * vector_of(a));
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

int64_t sharded_rmsnorm_link_bytes(const sharded_rmsnorm_args *a, const vt_impl *row,
                                   const vt_batch *batch)
{
    int64_t n = a->comm->group->n, rows = vt_batch_rows(a->sums, batch);
    if (row == &sharded_rmsnorm_push)
        return (n - 1) * rows * PACKET_BYTES;
    bool staged = row && a->comm->group->gpu && a->comm->group->gpu->staged;
    return (staged ? n : n - 1) * rows * SHARDED_PARTS * (int64_t)sizeof(float);
}

const vt_impl sharded_rmsnorm_push = {CUDA_ROW("push", push, push_supports), .fixed_order = true,
                                      .plan = &sharded_rmsnorm_plan};

const vt_impl sharded_rmsnorm_one_shot = {CUDA_ROW("one-shot", one_shot, one_shot_supports),
                                          .fixed_order = true, .plan = &sharded_rmsnorm_plan};
