/* The sum over ranks and its norm: the card and its portable form. Beside the two ops it saves a
 * launch, and on a GPU the norm's read of the sum. */
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"

#include <math.h>

#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_impls.h"
#include "ops/cases.h"
#include "ops/simd_portable.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm_kernel.h"

static vt_cost all_reduce_rmsnorm_cost(const void *args, const vt_batch *batch)
{
    const all_reduce_rmsnorm_args *a = args;
    vt_cost c = all_reduce_op.cost(&a->sum, batch);
    c.read.weights += vt_batch_bytes(a->weight, batch);
    c.write.activations += vt_batch_bytes(a->y, batch);
    c.flops.fp32 += 4 * vt_batch_elems(a->y, batch); /* as rmsnorm's */
    return c;
}

static void all_reduce_rmsnorm_reference(const void *args)
{
    const all_reduce_rmsnorm_args *a = args;
    rmsnorm_args norm = all_reduce_rmsnorm_norm(a);
    all_reduce_op.reference(&a->sum);
    rmsnorm_op.reference(&norm);
}

enum { RANKS, TOKENS, N, TYPE, PLUS_ONE, IN_PLACE };

static const vt_field all_reduce_rmsnorm_fields[] = {
    [RANKS] = {"ranks", 2, false, VT_MAX_RANKS},
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 4096},
    [TYPE] = {"type", VT_F32, true},
    [PLUS_ONE] = {"plus_one", 0, false, 1},
    [IN_PLACE] = {"in_place", 0, false, 1},
};

static const char *all_reduce_rmsnorm_refuses(const vt_case *c)
{
    return c->p[TYPE] > VT_BF16 ? "type: the norm's weights are f32, f16 or bf16" : NULL;
}

/* in_place: the sum becomes the residual */
static const char *const all_reduce_rmsnorm_cases[] = {
    "*ranks=2|4 tokens=1 n=4096",
    "*ranks=2 tokens=512 n=576 in_place=1",
    "ranks=1|3 tokens=5 n=1",
    "ranks=3 tokens=7 n=333 type=f16 in_place=1",
    "ranks=8 tokens=3 n=129 type=bf16 plus_one=1",
    NULL,
};

static const char *const all_reduce_rmsnorm_draws[] = {
    "ranks=~8 tokens=~90 n=~3000 plus_one=0|1 in_place=0|1",
    NULL,
};

/* Fills in the ranks' buffers and the residual. */
static bool make_sum(const vt_case *c, uint64_t *seed, vt_arena *arena, all_reduce_args *sum)
{
    int32_t ranks = (int32_t)c->p[RANKS], rank = (int32_t)(*seed % (uint64_t)ranks);
    vt_comm_rank *comm = case_comm(arena, rank, ranks);
    vt_tensor *residual = case_fill(arena, case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]), 0,
                                    1, seed);
    for (int32_t r = 0; r < ranks && comm; r++)
        if (!(comm->group->buffer[VT_SLOT_MIXER][r] = case_fill(
                  arena, case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]), 0, 1, seed)))
            return false;
    if (!comm || !residual)
        return false;
    *sum = (all_reduce_args){
        .comm = comm,
        .slot = VT_SLOT_MIXER,
        .order = 1,
        .x = comm->group->buffer[VT_SLOT_MIXER][rank],
        .residual = residual,
        .y = c->p[IN_PLACE] ? residual : case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N])};
    return sum->y != NULL;
}

static void *all_reduce_rmsnorm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                          vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    all_reduce_rmsnorm_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *w = case_fill(arena, case_tensor_1d(arena, (vt_dtype)c->p[TYPE], c->p[N]), 1, 0.3f,
                             &seed);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    if (!a || !w || !y || !make_sum(c, &seed, arena, &a->sum))
        return NULL;
    a->weight = w;
    a->y = y;
    a->eps = 1e-5f;
    a->plus_one = c->p[PLUS_ONE] != 0;
    outputs[0] = y;
    outputs[1] = a->sum.y;
    *n_outputs = 2;
    return a;
}

static void all_reduce_rmsnorm_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                                     int64_t *p)
{
    const all_reduce_rmsnorm_args *a = args;
    (void)most_weights;
    p[RANKS] = a->sum.comm->group->n;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
    p[TYPE] = a->weight->dtype;
}

static const vt_impl *const all_reduce_rmsnorm_impls[] = {
    CPU_ROWS(all_reduce_rmsnorm),
    &all_reduce_rmsnorm_push,
    &all_reduce_rmsnorm_one_shot,
    &all_reduce_rmsnorm_apart,
    NULL,
};

static const vt_operand all_reduce_rmsnorm_operands[] = {
    {"x", offsetof(all_reduce_rmsnorm_args, sum.x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"residual", offsetof(all_reduce_rmsnorm_args, sum.residual), VT_OPERAND_ACTIVATION, true,
     false, 0},
    {"sum", offsetof(all_reduce_rmsnorm_args, sum.y), VT_OPERAND_ACTIVATION, false, true, 0},
    {"weight", offsetof(all_reduce_rmsnorm_args, weight), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(all_reduce_rmsnorm_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op all_reduce_rmsnorm_op = {
    .what = "sums over the ranks, adds the residual, normalises rows",
    .tolerance = 4e-6,
    .tolerance_reason = "as many fp32 roundings as there are ranks, then the norm's partial sums",
    .is = VT_OP_JOINS_RANKS,
    .refuses = all_reduce_rmsnorm_refuses,
    CARD_OF(all_reduce_rmsnorm),
};
