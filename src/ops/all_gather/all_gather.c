/* Joining the columns of ranks: the card, its row for a CPU and the reference. It copies, so memory
 * bounds it; a piece of work is one rank's part of a row. */
#include "ops/all_gather/all_gather.h"

#include <string.h>

#include "ops/access.h"
#include "ops/cases.h"
#include "ops/cut.h"

static vt_cost all_gather_cost(const void *args, const vt_batch *batch)
{
    const all_gather_args *a = args;
    int64_t bytes = vt_batch_bytes(a->y, batch);
    return (vt_cost){.read = {.activations = bytes}, .write = {.activations = bytes}};
}

int64_t all_gather_link_bytes(const all_gather_args *a, const vt_batch *batch)
{
    return vt_batch_bytes(a->y, batch) - vt_batch_bytes(a->x, batch);
}

static void all_gather_reference(const void *args)
{
    const all_gather_args *a = args;
    const vt_comm *g = a->comm->group;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int32_t r = 0, at = 0; r < g->n; at += (int32_t)g->buffer[a->slot][r++]->dim[1])
            for (int64_t i = 0; i < g->buffer[a->slot][r]->dim[1]; i++)
                tensor_set(a->y, t, at + i, tensor_get(g->buffer[a->slot][r], t, i));
}

static vt_status all_gather_run(const void *args, const vt_lane *lane)
{
    const all_gather_args *a = args;
    const vt_comm *g = a->comm->group;
    int64_t at[VT_MAX_RANKS], begin, end, sum = 0;
    if (!vt_comm_meet(a->comm, a->order, lane))
        return VT_OK; /* the executor learns of a failed rank from the group */
    for (int32_t r = 0; r < g->n; r++) {
        at[r] = sum;
        sum += g->buffer[a->slot][r]->dim[1];
    }
    vt_lane_share(lane, a->y->dim[0] * g->n, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / g->n, r = unit % g->n;
        const vt_tensor *x = g->buffer[a->slot][r];
        memcpy(row_f32(a->y, t) + at[r], row_f32(x, t), (size_t)x->dim[1] * sizeof(float));
    }
    return VT_OK;
}

static bool all_gather_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const all_gather_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static void all_gather_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const all_gather_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%d parts of [%lld x %lld]", a->comm->group->n, (long long)rows,
                 (long long)a->y->dim[1]);
    vt_cut_cpu(out, t, rows * a->comm->group->n, 0);
}

enum { RANKS, ROWS, N };

static const vt_field all_gather_fields[] = {
    [RANKS] = {"ranks", 2, false, VT_MAX_RANKS},
    [ROWS] = {"rows", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 49152},
};

static const char *all_gather_refuses(const vt_case *c)
{
    return c->p[N] < c->p[RANKS] ? "n: every rank has a column" : NULL;
}

/* Rank r has columns n r / ranks to n (r + 1) / ranks. */
static const char *const all_gather_cases[] = {
    "*ranks=2 rows=1|8 n=49152",
    "*ranks=4 rows=1 n=151936",
    "ranks=1|3 rows=5 n=7",
    "ranks=4 rows=3 n=1061",
    NULL,
};

static const char *const all_gather_draws[] = {
    "ranks=~8 rows=~40 n=~3000",
    NULL,
};

static void *all_gather_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int32_t ranks = (int32_t)c->p[RANKS], rank = (int32_t)(seed % (uint64_t)ranks);
    int64_t n = c->p[N];
    all_gather_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_comm_rank *comm = case_comm(arena, rank, ranks);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[ROWS], n);
    if (!a || !comm || !y)
        return NULL;
    for (int32_t r = 0; r < ranks; r++) {
        vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[ROWS],
                                      n * (r + 1) / ranks - n * r / ranks);
        if (!case_fill(arena, x, 0, 1, &seed))
            return NULL;
        comm->group->buffer[VT_SLOT_LOGITS][r] = x;
    }
    *a = (all_gather_args){.comm = comm,
                           .slot = VT_SLOT_LOGITS,
                           .order = 1,
                           .x = comm->group->buffer[VT_SLOT_LOGITS][rank],
                           .y = y};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void all_gather_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                             int64_t *p)
{
    const all_gather_args *a = args;
    (void)most_weights;
    p[RANKS] = a->comm->group->n;
    p[ROWS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
}

static const vt_impl all_gather_copy = {.name = "copy",
                                        .device = VT_DEVICE_CPU,
                                        .supports = all_gather_supports,
                                        .run = all_gather_run,
                                        .describe = all_gather_describe};

static const vt_impl *const all_gather_impls[] = {&all_gather_copy, &all_gather_cuda, NULL};

static const vt_operand all_gather_operands[] = {
    {"x", offsetof(all_gather_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(all_gather_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op all_gather_op = {
    CARD_OF(all_gather),
    .what = "joins the columns that the ranks computed",
    .tolerance = 0,
    .tolerance_reason = "it copies",
    .refuses = all_gather_refuses,
    .is = VT_OP_JOINS_RANKS,
};
