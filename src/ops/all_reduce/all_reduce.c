/* The sum over ranks: the card, its portable form and the reference. It moves (ranks + 1) tensors,
 * and one more with a residual. For a few tokens its time is that of the meeting: two cache lines
 * that go from core to core. */
#include "ops/all_reduce/all_reduce.h"

#include "ops/all_reduce/all_reduce_impls.h"
#include "ops/cases.h"
#include "ops/simd_portable.h"
#include "ops/all_reduce/all_reduce_kernel.h"

static vt_cost all_reduce_cost(const void *args, const vt_batch *batch)
{
    const all_reduce_args *a = args;
    int64_t ranks = a->comm->group->n, n = vt_batch_elems(a->y, batch),
            bytes = vt_batch_bytes(a->y, batch);
    return (vt_cost){
        .read = {.activations = (ranks + (a->residual ? 1 : 0)) * bytes},
        .write = {.activations = bytes},
        .flops = {.fp32 = (ranks - 1 + (a->residual ? 1 : 0)) * n},
    };
}

/* Rows but two-shot bring all buffers of the peers. Through the host's memory, which all ranks
 * write and read, the rank's own buffer and the parts that it adds go over its link too. */
int64_t all_reduce_link_bytes(const all_reduce_args *a, const vt_impl *row, const vt_batch *batch)
{
    int64_t n = a->comm->group->n, bytes = vt_batch_bytes(a->y, batch);
    bool staged = a->comm->group->gpu && a->comm->group->gpu->staged;
    if (!row)
        return vt_ceil_div(2 * (n - 1) * bytes, n);
    if (row == &all_reduce_two_shot)
        return vt_ceil_div((staged ? 3 * n - 1 : 2 * (n - 1)) * bytes, n);
    return (staged ? n : n - 1) * bytes;
}

static void all_reduce_reference(const void *args)
{
    const all_reduce_args *a = args;
    const vt_comm *g = a->comm->group;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++) {
            double sum = a->residual ? tensor_get(a->residual, t, i) : 0;
            for (int32_t r = 0; r < g->n; r++)
                sum += tensor_get(g->buffer[a->slot][r], t, i);
            tensor_set(a->y, t, i, (float)sum);
        }
}

enum { RANKS, TOKENS, N, RESIDUAL };

static const vt_field all_reduce_fields[] = {
    [RANKS] = {"ranks", 2, false, VT_MAX_RANKS},
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 4096},
    [RESIDUAL] = {"residual", 0, false, 1},
};

/* residual: added, and y is the residual */
static const char *const all_reduce_cases[] = {
    "*ranks=2|4 tokens=1 n=4096", "*ranks=2 tokens=1|512 n=576 residual=1",
    "ranks=1|3 tokens=5 n=1",     "ranks=3 tokens=7 n=333 residual=1",
    "ranks=8 tokens=3 n=129",     NULL,
};

static const char *const all_reduce_draws[] = {
    "ranks=~8 tokens=~90 n=~3000 residual=0|1",
    NULL,
};

static void *all_reduce_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int32_t ranks = (int32_t)c->p[RANKS], rank = (int32_t)(seed % (uint64_t)ranks);
    all_reduce_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_comm_rank *comm = case_comm(arena, rank, ranks);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]), *residual = NULL;
    if (!a || !comm || !y)
        return NULL;
    for (int32_t r = 0; r < ranks; r++) {
        vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
        if (!case_fill(arena, x, 0, 1, &seed))
            return NULL;
        comm->group->buffer[VT_SLOT_MIXER][r] = x;
    }
    if (c->p[RESIDUAL]) {
        residual = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
        if (!case_fill(arena, residual, 0, 1, &seed))
            return NULL;
    }
    *a = (all_reduce_args){.comm = comm,
                           .slot = VT_SLOT_MIXER,
                           .order = 1,
                           .x = comm->group->buffer[VT_SLOT_MIXER][rank],
                           .residual = residual,
                           .y = y};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void all_reduce_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                             int64_t *p)
{
    const all_reduce_args *a = args;
    (void)most_weights;
    p[RANKS] = a->comm->group->n;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
    p[RESIDUAL] = a->residual != NULL;
}

static const vt_impl *const all_reduce_impls[] = {
    CPU_ROWS(all_reduce), &all_reduce_push, &all_reduce_one_shot, &all_reduce_two_shot, NULL,
};

static const vt_operand all_reduce_operands[] = {
    {"x", offsetof(all_reduce_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"residual", offsetof(all_reduce_args, residual), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(all_reduce_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op all_reduce_op = {
    .what = "sums what the ranks computed, in the same order on each",
    .tolerance = 2e-6,
    .tolerance_reason = "as many fp32 roundings as there are ranks",
    .is = VT_OP_JOINS_RANKS,
    CARD_OF(all_reduce),
};
