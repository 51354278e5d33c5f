/* The sum over ranks of a part of the columns each: the card, its portable form and the reference.
 * A rank reads its part of every buffer and writes it once; for a few tokens the meeting takes most
 * of the time. */
#include "ops/reduce_scatter/reduce_scatter.h"

#include "ops/cases.h"
#include "ops/reduce_scatter/reduce_scatter_impls.h"
#include "ops/simd_portable.h"
#include "ops/reduce_scatter/reduce_scatter_kernel.h"

static vt_cost reduce_scatter_cost(const void *args, const vt_batch *batch)
{
    const reduce_scatter_args *a = args;
    int64_t ranks = a->comm->group->n, bytes = vt_batch_bytes(a->y, batch);
    return (vt_cost){
        .read = {.activations = ranks * bytes},
        .write = {.activations = bytes},
        .flops = {.fp32 = (ranks - 1) * vt_batch_elems(a->y, batch)},
    };
}

/* Through the host's memory the rank writes there what its peers read. */
int64_t reduce_scatter_link_bytes(const reduce_scatter_args *a, const vt_batch *batch)
{
    const vt_comm *g = a->comm->group;
    int64_t part = vt_batch_bytes(a->y, batch), all = vt_batch_bytes(a->x, batch);
    return (g->n - 1) * part + (g->gpu && g->gpu->staged ? all - part : 0);
}

static void reduce_scatter_reference(const void *args)
{
    const reduce_scatter_args *a = args;
    const vt_comm *g = a->comm->group;
    int64_t first = reduce_scatter_begin(a->x->dim[1], g->n, a->comm->rank);
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++) {
            double sum = 0;
            for (int32_t r = 0; r < g->n; r++)
                sum += tensor_get(g->buffer[a->slot][r], t, first + i);
            tensor_set(a->y, t, i, (float)sum);
        }
}

enum { RANKS, TOKENS, N };

static const vt_field reduce_scatter_fields[] = {
    [RANKS] = {"ranks", 2, false, VT_MAX_RANKS},
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 4096},
};

static const char *reduce_scatter_refuses(const vt_case *c)
{
    return c->p[N] < c->p[RANKS] ? "n: every rank has a column" : NULL;
}

static const char *const reduce_scatter_cases[] = {
    "*ranks=2|4 tokens=1 n=4096", "*ranks=2 tokens=512 n=576", "ranks=1|3 tokens=5 n=7",
    "ranks=3 tokens=7 n=333",     "ranks=8 tokens=3 n=136",    NULL,
};

static const char *const reduce_scatter_draws[] = {
    "ranks=~8 tokens=~90 n=~3000",
    NULL,
};

static void *reduce_scatter_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                      vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int32_t ranks = (int32_t)c->p[RANKS], rank = (int32_t)(seed % (uint64_t)ranks);
    int64_t n = c->p[N],
            cols = reduce_scatter_begin(n, ranks, rank + 1) - reduce_scatter_begin(n, ranks, rank);
    reduce_scatter_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_comm_rank *comm = case_comm(arena, rank, ranks);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[TOKENS], cols);
    if (!a || !comm || !y)
        return NULL;
    for (int32_t r = 0; r < ranks; r++) {
        vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[TOKENS], n);
        if (!case_fill(arena, x, 0, 1, &seed))
            return NULL;
        comm->group->buffer[VT_SLOT_MIXER][r] = x;
    }
    *a = (reduce_scatter_args){.comm = comm,
                               .slot = VT_SLOT_MIXER,
                               .order = 1,
                               .x = comm->group->buffer[VT_SLOT_MIXER][rank],
                               .y = y};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void reduce_scatter_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                                 int64_t *p)
{
    const reduce_scatter_args *a = args;
    (void)most_weights;
    p[RANKS] = a->comm->group->n;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->x->dim[1];
}

static const vt_impl *const reduce_scatter_impls[] = {
    CPU_ROWS(reduce_scatter),
    &reduce_scatter_push,
    &reduce_scatter_one_shot,
    NULL,
};

static const vt_operand reduce_scatter_operands[] = {
    {"x", offsetof(reduce_scatter_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(reduce_scatter_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op reduce_scatter_op = {
    .what = "sums what the ranks computed, a part of the columns on each",
    .tolerance = 2e-6,
    .tolerance_reason = "as many fp32 roundings as there are ranks",
    .refuses = reduce_scatter_refuses,
    .is = VT_OP_JOINS_RANKS,
    CARD_OF(reduce_scatter),
};
