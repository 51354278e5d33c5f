/* RMSNorm over ranks: the cards of its two calls, and their portable form. The meeting between them
 * bounds both for a few tokens; a row's sums are 8 bytes. */
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm_impls.h"
#include "ops/simd_portable.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm_kernel.h"

/* ---- square_sums ---- */

static vt_cost square_sums_cost(const void *args, const vt_batch *batch)
{
    const square_sums_args *a = args;
    vt_cost c = {.write = {.activations = vt_batch_bytes(a->y, batch)}};
    for (int32_t k = 0; k < SHARDED_PARTS; k++)
        if (a->x[k]) {
            c.read.activations += vt_batch_bytes(a->x[k], batch);
            c.flops.fp32 += 2 * vt_batch_elems(a->x[k], batch);
        }
    return c;
}

static double sum_of_squares(const vt_tensor *x, int64_t t)
{
    double sum = 0;
    for (int64_t i = 0; x && i < x->dim[1]; i++)
        sum += (double)tensor_get(x, t, i) * tensor_get(x, t, i);
    return sum;
}

static void square_sums_reference(const void *args)
{
    const square_sums_args *a = args;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int32_t k = 0; k < SHARDED_PARTS; k++)
            tensor_set(a->y, t, k, (float)sum_of_squares(a->x[k], t));
}

enum { SUM_TOKENS, SUM_N, SUM_K };

static const vt_field square_sums_fields[] = {
    [SUM_TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [SUM_N] = {"n", 2048},
    [SUM_K] = {"k", 0},
};

/* n, k: columns of q and k; k is 0 on a rank whose keys are a copy of a peer's. */
static const char *const square_sums_cases[] = {
    "*tokens=1|512 n=2048 k=2048", "*tokens=1 n=1536 k=256", "tokens=5 n=1 k=1",
    "tokens=7 n=333 k=129",        "tokens=3 n=576",         NULL,
};

static const char *const square_sums_draws[] = {
    "tokens=~90 n=~3000 k=~1000",
    NULL,
};

static vt_tensor *make_slice(vt_arena *arena, const vt_tensor *wide, int64_t begin, int64_t cols)
{
    return cols > 0 ? case_slice(arena, wide, begin, cols) : NULL;
}

/* q and k lie side by side, as they do in a program. */
static void *square_sums_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t q = c->p[SUM_N], k = c->p[SUM_K];
    square_sums_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, c->p[SUM_TOKENS], q + k), 0.1f, 1,
                             &seed);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[SUM_TOKENS], SHARDED_PARTS);
    if (!a || !x || !y)
        return NULL;
    *a = (square_sums_args){{make_slice(arena, x, 0, q), make_slice(arena, x, q, k)}, y};
    outputs[0] = y;
    *n_outputs = 1;
    return a->x[0] && (a->x[1] || k == 0) ? a : NULL;
}

static void square_sums_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                              int64_t *p)
{
    const square_sums_args *a = args;
    (void)most_weights;
    p[SUM_TOKENS] = vt_batch_rows(a->y, batch);
    p[SUM_N] = a->x[0]->dim[1];
    p[SUM_K] = a->x[1] ? a->x[1]->dim[1] : 0;
}

static const vt_impl *const square_sums_impls[] = {
    CPU_ROWS(square_sums),
    &square_sums_cuda,
    NULL,
};

static const vt_operand square_sums_operands[] = {
    {"q", offsetof(square_sums_args, x[0]), VT_OPERAND_ACTIVATION, true, false, 0},
    {"k", offsetof(square_sums_args, x[1]), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(square_sums_args, y), VT_OPERAND_F32, false, true, 0},
};

const vt_op square_sums_op = {
    .what = "sums the squares of a rank's part of rows, for a norm over all ranks",
    .tolerance = 4e-6,
    .tolerance_reason = "fp32 sum of squares in partial sums against double",
    CARD_OF(square_sums),
};

/* ---- sharded_rmsnorm ---- */

static vt_cost sharded_rmsnorm_cost(const void *args, const vt_batch *batch)
{
    const sharded_rmsnorm_args *a = args;
    int64_t ranks = a->comm->group->n;
    vt_cost c = {.read = {.activations = ranks * vt_batch_bytes(a->sums, batch)},
                 .flops = {.fp32 = (ranks - 1) * vt_batch_elems(a->sums, batch)}};
    for (int32_t k = 0; k < SHARDED_PARTS && a->part[k].x; k++) {
        const sharded_rmsnorm_part *p = &a->part[k];
        c.read.activations += vt_batch_bytes(p->x, batch);
        c.read.weights += vt_tensor_bytes(p->weight);
        c.write.activations += vt_batch_bytes(p->y, batch);
        c.flops.fp32 += 2 * vt_batch_elems(p->x, batch);
    }
    return c;
}

static void sharded_rmsnorm_reference(const void *args)
{
    const sharded_rmsnorm_args *a = args;
    const vt_comm *g = a->comm->group;
    for (int64_t t = 0; t < a->sums->dim[0]; t++)
        for (int32_t k = 0; k < SHARDED_PARTS && a->part[k].x; k++) {
            const sharded_rmsnorm_part *p = &a->part[k];
            double sum = 0;
            for (int32_t r = 0; r < g->n; r++)
                sum += tensor_get(g->buffer[a->slot][r], t, k);
            double inv = 1 / sqrt(sum / (double)p->whole + a->eps);
            for (int64_t i = 0; i < p->x->dim[1]; i++) {
                double w = (double)tensor_get(p->weight, 0, i) + (a->plus_one ? 1 : 0);
                tensor_set(p->y, t, i, (float)(tensor_get(p->x, t, i) * inv * w));
            }
        }
}

enum { RANKS, TOKENS, N, K, TYPE, PLUS_ONE, IN_PLACE };

static const vt_field sharded_rmsnorm_fields[] = {
    [RANKS] = {"ranks", 2, false, VT_MAX_RANKS},
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 2048},
    [K] = {"k", 0},
    [TYPE] = {"type", VT_F32, true},
    [PLUS_ONE] = {"plus_one", 0, false, 1},
    [IN_PLACE] = {"in_place", 0, false, 1},
};

static const char *sharded_rmsnorm_refuses(const vt_case *c)
{
    return c->p[TYPE] > VT_BF16 ? "type: the norm's weights are f32, f16 or bf16" : NULL;
}

/* n, k: this rank's columns of q and k */
static const char *const sharded_rmsnorm_cases[] = {
    "*ranks=2|4 tokens=1 n=2048 k=2048",
    "*ranks=2 tokens=512 n=1536 k=256 in_place=1",
    "ranks=1|3 tokens=5 n=1 k=1",
    "ranks=3 tokens=7 n=333 k=129 type=f16 in_place=1",
    "ranks=8 tokens=3 n=129 type=bf16 plus_one=1",
    NULL,
};

static const char *const sharded_rmsnorm_draws[] = {
    "ranks=~8 tokens=~90 n=~3000 k=~1000 plus_one=0|1 in_place=0|1",
    NULL,
};

/* Fills in one part; without columns nothing. */
static bool make_part(const vt_case *c, int64_t cols, uint64_t *seed, vt_arena *arena,
                      sharded_rmsnorm_part *p)
{
    if (cols == 0)
        return true;
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, c->p[TOKENS], cols), 0.1f, 1,
                             seed);
    p->x = x;
    p->weight = case_fill(arena, case_tensor_1d(arena, (vt_dtype)c->p[TYPE], cols), 1, 0.3f, seed);
    p->y = c->p[IN_PLACE] ? x : case_tensor_2d(arena, VT_F32, c->p[TOKENS], cols);
    p->whole = cols * c->p[RANKS];
    return p->x && p->weight && p->y;
}

/* The sums are near those of the rows that the ranks would have. */
static void *sharded_rmsnorm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                       vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int32_t ranks = (int32_t)c->p[RANKS], rank = (int32_t)(seed % (uint64_t)ranks);
    sharded_rmsnorm_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_comm_rank *comm = case_comm(arena, rank, ranks);
    if (!a || !comm || !make_part(c, c->p[N], &seed, arena, &a->part[0]) ||
        !make_part(c, c->p[K], &seed, arena, &a->part[1]))
        return NULL;
    for (int32_t r = 0; r < ranks; r++) {
        vt_tensor *sums = case_tensor_2d(arena, VT_F32, c->p[TOKENS], SHARDED_PARTS);
        if (!case_fill(arena, sums, (float)c->p[N], 0.1f * (float)c->p[N], &seed))
            return NULL;
        comm->group->buffer[VT_SLOT_NORM][r] = sums;
    }
    a->comm = comm;
    a->slot = VT_SLOT_NORM;
    a->order = 1;
    a->sums = comm->group->buffer[VT_SLOT_NORM][rank];
    a->eps = 1e-5f;
    a->plus_one = c->p[PLUS_ONE] != 0;
    *n_outputs = 0;
    for (int32_t k = 0; k < SHARDED_PARTS && a->part[k].x; k++)
        outputs[(*n_outputs)++] = a->part[k].y;
    return a;
}

static void sharded_rmsnorm_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                                  int64_t *p)
{
    const sharded_rmsnorm_args *a = args;
    (void)most_weights;
    p[RANKS] = a->comm->group->n;
    p[TOKENS] = vt_batch_rows(a->sums, batch);
    p[N] = a->part[0].x->dim[1];
    p[K] = a->part[1].x ? a->part[1].x->dim[1] : 0;
    p[TYPE] = a->part[0].weight->dtype;
}

static const vt_impl *const sharded_rmsnorm_impls[] = {
    CPU_ROWS(sharded_rmsnorm),
    &sharded_rmsnorm_push,
    &sharded_rmsnorm_one_shot,
    NULL,
};

static const vt_operand sharded_rmsnorm_operands[] = {
    {"sums", offsetof(sharded_rmsnorm_args, sums), VT_OPERAND_F32, true, false, 0},
    {"q", offsetof(sharded_rmsnorm_args, part[0].x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"q_weight", offsetof(sharded_rmsnorm_args, part[0].weight), VT_OPERAND_F32, true, false, 0},
    {"q_normed", offsetof(sharded_rmsnorm_args, part[0].y), VT_OPERAND_ACTIVATION, false, true, 0},
    {"k", offsetof(sharded_rmsnorm_args, part[1].x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"k_weight", offsetof(sharded_rmsnorm_args, part[1].weight), VT_OPERAND_F32, true, false, 0},
    {"k_normed", offsetof(sharded_rmsnorm_args, part[1].y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op sharded_rmsnorm_op = {
    .what = "adds the ranks' sums of squares, normalises a part of rows",
    .tolerance = 4e-6,
    .tolerance_reason = "as many fp32 roundings as there are ranks, a root and two products",
    .is = VT_OP_JOINS_RANKS,
    .refuses = sharded_rmsnorm_refuses,
    CARD_OF(sharded_rmsnorm),
};
