/* Gates by a sigmoid: the cards, their portable forms and the references. They move a few numbers
 * for each one computed; on a CPU these lie in L2. */
#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/sigmoid_gate/sigmoid_gate_impls.h"
#include "ops/simd_portable.h"
#include "ops/sigmoid_gate/sigmoid_gate_kernel.h"

static vt_cost head_split_cost(const void *args, const vt_batch *batch)
{
    const head_split_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch);
    return (vt_cost){.read = {.activations = vt_dtype_row_bytes(a->x->dtype, n)},
                     .write = {.activations = vt_batch_bytes(a->y, batch)}};
}

/* A sigmoid counts as four flops, of which the exponential is one. */
static vt_cost head_gate_cost(const void *args, const vt_batch *batch)
{
    vt_cost c = head_split_cost(args, batch);
    const head_gate_args *a = args;
    c.read.activations += vt_batch_bytes(a->y, batch);
    c.flops.fp32 = 5 * vt_batch_elems(a->y, batch);
    return c;
}

static vt_cost row_gate_cost(const void *args, const vt_batch *batch)
{
    const row_gate_args *a = args;
    int64_t y = vt_batch_bytes(a->y, batch);
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch) + y, .weights = vt_tensor_bytes(a->w)},
        .write = {.activations = y},
        .flops = {.fp32 = vt_batch_rows(a->y, batch) * (2 * a->w->dim[0] + 4 + a->y->dim[1])}};
}

static void head_split_reference(const void *args)
{
    const head_split_args *a = args;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++)
            tensor_set(a->y, t, i, tensor_get(a->x, t, i / a->dim * a->dim + i));
}

static void head_gate_reference(const void *args)
{
    const head_gate_args *a = args;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++) {
            double g = tensor_get(a->x, t, (i / a->dim + 1) * a->dim + i);
            tensor_set(a->y, t, i, (float)(tensor_get(a->y, t, i) / (1 + exp(-g))));
        }
}

static void row_gate_reference(const void *args)
{
    const row_gate_args *a = args;
    for (int64_t t = 0; t < a->y->dim[0]; t++) {
        double g = 0;
        for (int64_t i = 0; i < a->w->dim[0]; i++)
            g += (double)tensor_get(a->w, 0, i) * tensor_get(a->x, t, i);
        for (int64_t i = 0; i < a->y->dim[1]; i++)
            tensor_set(a->y, t, i, (float)(tensor_get(a->y, t, i) / (1 + exp(-g))));
    }
}

/* ---- cases ---- */

enum { TOKENS, HEADS, DIM };

static const vt_field head_gate_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HEADS] = {"heads", 16, false, 1024},
    [DIM] = {"dim", 256, false, 1024},
};

static const char *const head_gate_cases[] = {
    "*tokens=1|512 heads=16 dim=256",
    "tokens=3 heads=1|5 dim=2|37",
    NULL,
};

static const char *const head_gate_draws[] = {
    "tokens=~60 heads=~12 dim=~200",
    "tokens=~60 heads=~12 dim=64|256",
    NULL,
};

/* x is a slice of a wider activation, as in a program. */
static void *head_gate_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t n = c->p[HEADS] * c->p[DIM];
    head_gate_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    if (!a)
        return NULL;
    vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[TOKENS], 2 * n + 2 * c->p[DIM]),
              *y = case_tensor_2d(arena, VT_F32, c->p[TOKENS], n);
    *a = (head_gate_args){.x = case_slice(arena, case_fill(arena, x, 0, 2, &seed), 0, 2 * n),
                          .y = case_fill(arena, y, 0, 1, &seed),
                          .dim = (int32_t)c->p[DIM]};
    outputs[0] = a->y;
    *n_outputs = 1;
    return a->x && a->y ? a : NULL;
}

static void head_gate_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                            int64_t *p)
{
    const head_gate_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[DIM] = a->dim;
    p[HEADS] = a->y->dim[1] / a->dim;
}

enum { HIDDEN = 1, N };

static const vt_field row_gate_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 2048, false, 1 << 14},
    [N] = {"n", 512, false, 1 << 14},
};

static const char *const row_gate_cases[] = {
    "*tokens=1|512 hidden=2048 n=512",
    "tokens=3 hidden=1|75 n=1|37",
    NULL,
};

static const char *const row_gate_draws[] = {
    "tokens=~60 hidden=~300 n=~300",
    "tokens=~60 hidden=256|2048 n=512",
    NULL,
};

static void *row_gate_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t tokens = c->p[TOKENS], hidden = c->p[HIDDEN];
    row_gate_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    if (!a)
        return NULL;
    *a = (row_gate_args){
        .x = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, hidden), 0, 1, &seed),
        .w = case_fill(arena, case_tensor_1d(arena, VT_F32, hidden), 0, 1 / sqrtf((float)hidden),
                       &seed),
        .y = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, c->p[N]), 0, 1, &seed)};
    outputs[0] = a->y;
    *n_outputs = 1;
    return a->x && a->w && a->y ? a : NULL;
}

static void row_gate_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                           int64_t *p)
{
    const row_gate_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[HIDDEN] = a->w->dim[0];
    p[N] = a->y->dim[1];
}

/* ---- the cards ---- */

static const vt_impl *const head_split_impls[] = {CPU_ROWS(head_split), &head_split_cuda, NULL};
static const vt_impl *const head_gate_impls[] = {CPU_ROWS(head_gate), &head_gate_cuda, NULL};
static const vt_impl *const row_gate_impls[] = {CPU_ROWS(row_gate), &row_gate_cuda, NULL};

static const vt_operand head_split_operands[] = {
    {"x", offsetof(head_split_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(head_split_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

static const vt_operand head_gate_operands[] = {
    {"x", offsetof(head_gate_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(head_gate_args, y), VT_OPERAND_ACTIVATION, true, true, 0},
};

static const vt_operand row_gate_operands[] = {
    {"x", offsetof(row_gate_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"w", offsetof(row_gate_args, w), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(row_gate_args, y), VT_OPERAND_ACTIVATION, true, true, 0},
};

/* The cases of heads are shared: both ops are about the same layout. */
const vt_op head_split_op = {
    CARD_CALL(head_split),
    CARD_CASES(head_gate),
    .what = "copies q out of heads that hold q and a gate",
    .tolerance = 0,
    .tolerance_reason = "a copy",
};

const vt_op head_gate_op = {
    CARD_CALL(head_gate),
    CARD_CASES(head_gate),
    .what = "multiplies each head of attention's output by the sigmoid of its gate",
    .tolerance = 1e-6,
    .tolerance_reason = "a polynomial exponential within 1.5e-7 and four fp32 roundings",
};

const vt_op row_gate_op = {
    CARD_OF(row_gate),
    .what = "multiplies each row by the sigmoid of its token's product with a vector",
    .tolerance = 4e-6,
    .tolerance_reason = "a sum of up to 16384 fp32 products in order, and a sigmoid",
};
