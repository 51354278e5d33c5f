/* GELU with erf: the card, its portable form and the reference. Encoders have it between the two
 * matrices of their feed-forward. Memory bounds it if the exponential is vectorised: 8 bytes per
 * output, 12 if it is gated. Rejected: an epilogue of the linear before it, which would save those
 * bytes on every device but needs a branch in each of its rows. */
#include "ops/gelu/gelu.h"

#include <math.h>

#include "ops/cases.h"
#include "ops/gelu/gelu_impls.h"
#include "ops/simd_portable.h"
#include "ops/gelu/gelu_kernel.h"

/* Phi counts as two flops by convention, so that the number is the same for every
 * implementation. */
static vt_cost gelu_cost(const void *args, const vt_batch *batch)
{
    const gelu_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch);
    return (vt_cost){
        .read = {.activations = vt_dtype_row_bytes(a->x->dtype, (a->gated ? 2 : 1) * n)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        .flops = {.fp32 = (a->gated ? 4 : 3) * n},
    };
}

static void gelu_reference(const void *args)
{
    const gelu_args *a = args;
    int64_t n = a->y->dim[1];
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < n; i++) {
            double v = (double)tensor_get(a->x, t, i),
                   up = a->gated ? (double)tensor_get(a->x, t, n + i) : 1;
            tensor_set(a->y, t, i, (float)(0.5 * v * erfc(-v * 0.70710678118654752440) * up));
        }
}

enum { TOKENS, N, GATED, SPREAD, IN_PLACE };

static const vt_field gelu_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 1536},
    [GATED] = {"gated", 0, false, 1},
    [SPREAD] = {"spread", 2, false, 1000},
    [IN_PLACE] = {"in_place", 0, false, 1},
};

static const char *gelu_refuses(const vt_case *c)
{
    return c->p[GATED] && c->p[IN_PLACE] ? "in_place: not with gated" : NULL;
}

/* spread: the deviation of x */
static const char *const gelu_cases[] = {
    "*tokens=1|512 n=1536",
    "*tokens=512 n=1152 gated=1",
    "tokens=5 n=1",
    "tokens=3 n=1061 gated=1",
    "tokens=3 n=1061 in_place=1",
    "tokens=3 n=333 spread=100",
    "tokens=3 n=333 gated=1 spread=100",
    NULL,
};

static const char *const gelu_draws[] = {
    "tokens=~90 n=~3000 gated=0 spread=2|2|100 in_place=0|1",
    "tokens=~90 n=~3000 gated=1 spread=2|2|100",
    NULL,
};

static void *gelu_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                            vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    bool gated = c->p[GATED] != 0;
    gelu_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[TOKENS], (gated ? 2 : 1) * c->p[N]);
    vt_tensor *y = c->p[IN_PLACE] ? x : case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    if (!a || !case_fill(arena, x, 0, (float)c->p[SPREAD], &seed) || !y)
        return NULL;
    *a = (gelu_args){.x = x, .y = y, .gated = gated};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void gelu_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const gelu_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
    p[GATED] = a->gated;
}

static const vt_impl *const gelu_impls[] = {
    CPU_ROWS(gelu),
    &gelu_cuda,
    NULL,
};

static const vt_operand gelu_operands[] = {
    {"x", offsetof(gelu_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(gelu_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op gelu_op = {
    CARD_OF(gelu),
    .what = "the Gaussian error linear unit, by erf",
    .tolerance = 2e-6,
    .tolerance_reason = "erfc within 1.2e-7, relative, and five fp32 roundings",
    .refuses = gelu_refuses,
};
