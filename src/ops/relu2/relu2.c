/* The square of ReLU: the card, its portable form and the reference. Nemotron-H has it between the
 * two matrices of its feed-forwards. Memory bounds it: 8 bytes per number, 4 on a GPU. */
#include "ops/relu2/relu2.h"

#include "ops/cases.h"
#include "ops/relu2/relu2_impls.h"
#include "ops/simd_portable.h"
#include "ops/relu2/relu2_kernel.h"

static vt_cost relu2_cost(const void *args, const vt_batch *batch)
{
    const relu2_args *a = args;
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        .flops = {.fp32 = 2 * vt_batch_elems(a->y, batch)},
    };
}

static void relu2_reference(const void *args)
{
    const relu2_args *a = args;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++) {
            float v = tensor_get(a->x, t, i);
            tensor_set(a->y, t, i, v > 0 ? v * v : 0);
        }
}

enum { TOKENS, N, IN_PLACE };

static const vt_field relu2_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 21504},
    [IN_PLACE] = {"in_place", 0, false, 1},
};

static const char *const relu2_cases[] = {
    "*tokens=1|512 n=21504 in_place=1",
    "tokens=5 n=1",
    "tokens=3 n=1061 in_place=0|1",
    NULL,
};

static const char *const relu2_draws[] = {
    "tokens=~90 n=~3000 in_place=0|1",
    NULL,
};

static void *relu2_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                             vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    relu2_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    vt_tensor *y = c->p[IN_PLACE] ? x : case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    if (!a || !case_fill(arena, x, 0, 2, &seed) || !y)
        return NULL;
    *a = (relu2_args){.x = x, .y = y};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void relu2_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const relu2_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
    p[IN_PLACE] = a->x == a->y;
}

static const vt_impl *const relu2_impls[] = {
    CPU_ROWS(relu2),
    &relu2_cuda,
    NULL,
};

static const vt_operand relu2_operands[] = {
    {"x", offsetof(relu2_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(relu2_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op relu2_op = {
    CARD_OF(relu2),
    .what = "the square of ReLU",
    .tolerance = 1e-6,
    .tolerance_reason = "one fp32 rounding",
};
