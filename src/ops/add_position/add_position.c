/* Learned positions: the card, its portable form and the reference. Memory bounds it: x is read and
 * written, 8 bytes an element, for two additions. It runs once a step. */
#include "ops/add_position/add_position.h"

#include "ops/cases.h"
#include "ops/add_position/add_position_impls.h"
#include "ops/simd_portable.h"
#include "ops/add_position/add_position_kernel.h"

/* Returns how many rows of the table a step reads. Sequences share them: as many as the longest has
 * new tokens, where all begin at the same position. */
static int64_t table_rows(const add_position_args *a, const vt_batch *batch)
{
    int64_t most = 0, tokens = vt_batch_rows(a->x, batch);
    if (!batch || !batch->q_start)
        return tokens < a->table->dim[0] ? tokens : a->table->dim[0];
    for (int32_t s = 0; s < batch->n_seqs; s++) {
        int32_t n = batch->q_start[s + 1] - batch->q_start[s];
        most = n > most ? n : most;
    }
    return most;
}

static vt_cost add_position_cost(const void *args, const vt_batch *batch)
{
    const add_position_args *a = args;
    const vt_batch *own = batch ? batch : a->batch;
    int64_t n = vt_batch_elems(a->x, batch), tokens = vt_batch_rows(a->x, batch),
            x = vt_batch_bytes(a->x, batch);
    int64_t weights = table_rows(a, own) * vt_dtype_row_bytes(a->table->dtype, a->x->dim[1]);
    if (a->types) /* without a second text all tokens are of the first type */
        weights += (own && !own->second ? 1 : a->types->dim[0]) *
                   vt_dtype_row_bytes(a->types->dtype, a->x->dim[1]);
    return (vt_cost){
        .read = {.weights = weights, .activations = x + tokens * (int64_t)(2 * sizeof(int32_t))},
        .write = {.activations = x},
        .flops = {.fp32 = (a->types ? 2 : 1) * n},
    };
}

static void add_position_reference(const void *args)
{
    const add_position_args *a = args;
    for (int64_t t = 0; t < a->x->dim[0]; t++)
        for (int64_t i = 0; i < a->x->dim[1]; i++) {
            double v = (double)tensor_get(a->x, t, i);
            v += (double)tensor_get(a->table, a->batch->position[t] + a->first, i);
            if (a->types)
                v += (double)tensor_get(a->types, position_type(a->batch, t), i);
            tensor_set(a->x, t, i, (float)v);
        }
}

enum { TOKENS, HIDDEN, CONTEXT, FIRST, TYPES, TYPE };

static const vt_field add_position_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 768},
    [CONTEXT] = {"context", 512, false, 1 << 16, .grows = VT_GROWS_CONTEXT},
    [FIRST] = {"first", 0, false, 8},
    [TYPES] = {"types", 2, false, 2, .zero = true},
    [TYPE] = {"type", VT_F32, true},
};

static const char *add_position_refuses(const vt_case *c)
{
    if (c->p[TYPE] > VT_BF16)
        return "type: the tables are f32, f16 or bf16";
    return c->p[TOKENS] > c->p[CONTEXT] ? "context: at least as large as tokens" : NULL;
}

/* Two sequences share the tokens; with two types the second text of each begins in its middle. */
static const char *const add_position_cases[] = {
    "*tokens=1|512 hidden=384",
    "tokens=17 hidden=20 first=2 types=1",
    "tokens=9 hidden=67 type=f16",
    "tokens=40 hidden=391 type=bf16 first=2 types=0",
    NULL,
};

static const char *const add_position_draws[] = {
    "tokens=~400 hidden=1|24|67|384|1024 first=0|2 types=0|1|2 type=f32|f16|bf16",
    NULL,
};

static vt_batch *make_batch(vt_arena *arena, int64_t tokens, bool two, uint64_t *seed)
{
    int32_t n = tokens > 1 ? 2 : 1, first = (int32_t)(tokens / n);
    case_seq seq[2] = {{first, first}, {(int32_t)tokens - first, (int32_t)tokens - first}};
    vt_batch *b = case_batch(arena, 16, n, seq, false, 100, seed);
    int32_t *second = vt_arena_alloc(arena, (size_t)n, sizeof *second);
    if (!b || !second)
        return NULL;
    for (int32_t s = 0; s < n; s++)
        second[s] = seq[s].q_len / 2;
    b->second = two ? second : NULL;
    return b;
}

static void *add_position_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                    vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    add_position_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = make_batch(arena, p[TOKENS], p[TYPES] == 2, &seed);
    vt_tensor *table = case_tensor_2d(arena, (vt_dtype)p[TYPE], p[CONTEXT] + p[FIRST], p[HIDDEN]);
    vt_tensor *types = p[TYPES] ? case_tensor_2d(arena, (vt_dtype)p[TYPE], p[TYPES], p[HIDDEN])
                                : NULL;
    vt_tensor *x = case_tensor_2d(arena, VT_F32, p[TOKENS], p[HIDDEN]);
    if (!a || !b || !case_fill(arena, table, 0, 1, &seed) ||
        (p[TYPES] && !case_fill(arena, types, 0, 1, &seed)) || !case_fill(arena, x, 0, 1, &seed))
        return NULL;
    *a = (add_position_args){
        .batch = b, .table = table, .types = types, .first = (int32_t)p[FIRST], .x = x};
    outputs[0] = x;
    *n_outputs = 1;
    return a;
}

static void add_position_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                               int64_t *p)
{
    const add_position_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[HIDDEN] = a->x->dim[1];
    p[FIRST] = a->first;
    p[CONTEXT] = a->table->dim[0] - a->first;
    p[CONTEXT] = p[CONTEXT] < p[TOKENS] ? p[TOKENS] : p[CONTEXT];
    p[TYPES] = a->types ? a->types->dim[0] : 0;
    p[TYPE] = a->table->dtype;
}

static const vt_impl *const add_position_impls[] = {
    CPU_ROWS(position),
    &position_cuda,
    NULL,
};

static const vt_operand add_position_operands[] = {
    {"batch", offsetof(add_position_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"table", offsetof(add_position_args, table), VT_OPERAND_F32, true, false, 0},
    {"types", offsetof(add_position_args, types), VT_OPERAND_F32, true, false, 0},
    {"x", offsetof(add_position_args, x), VT_OPERAND_ACTIVATION, true, true, 0},
};

const vt_op add_position_op = {
    CARD_OF(add_position),
    .what = "adds the vectors of learned positions and of the text's type",
    .tolerance = 1e-6,
    .tolerance_reason = "two fp32 additions",
    .refuses = add_position_refuses,
};
