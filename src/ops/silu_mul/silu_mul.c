/* Gated activation: the card, its portable form and the reference. Memory bounds it if the
 * exponential is vectorised: 12 bytes per output. */
#include "ops/silu_mul/silu_mul.h"

#include <math.h>

#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/silu_mul/silu_mul_impls.h"
#include "ops/simd_portable.h"
#include "ops/silu_mul/silu_mul_kernel.h"

/* An exponential counts as one flop by convention, so that the number is the same for every
 * implementation. */
static vt_cost silu_mul_cost(const void *args, const vt_batch *batch)
{
    const silu_mul_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch);
    return (vt_cost){
        .read = {.activations = vt_dtype_row_bytes(a->x->dtype, 2 * n)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        .flops = {.fp32 = (a->activation == VT_ACT_SILU ? 5 : 9) * n},
    };
}

static void silu_mul_reference(const void *args)
{
    const silu_mul_args *a = args;
    int64_t n = a->y->dim[1];
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < n; i++) {
            double g = tensor_get(a->x, t, i),
                   up = a->up ? tensor_get(a->up, t, i) : tensor_get(a->x, t, n + i);
            double u = 0.79788456080286535588 * (g + 0.044715 * g * g * g);
            double act = a->activation == VT_ACT_SILU ? g / (1 + exp(-g)) : 0.5 * g * (1 + tanh(u));
            tensor_set(a->y, t, i, (float)(act * up));
        }
}

enum { TOKENS, N, ACTIVATION, SPREAD, APART };

static const char *const activations[] = {
    [VT_ACT_SILU] = "silu", [VT_ACT_GELU_TANH] = "gelu", NULL};

static const vt_field silu_mul_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 12288},
    [ACTIVATION] = {"activation", 0, false, 1, activations},
    [SPREAD] = {"spread", 2, false, 1000},
    [APART] = {"apart", 0, false, 1},
};

/* spread: the deviation of x; apart: `up` is a slice of a tensor of its own, and y is x */
static const char *const silu_mul_cases[] = {
    "*tokens=1 n=1536",
    "*tokens=512 n=1536",
    "*tokens=512 n=2048 activation=gelu",
    "tokens=5 n=1",
    "tokens=3 n=1061 activation=gelu",
    "tokens=3 n=333 spread=100",
    "tokens=3 n=333 activation=gelu spread=100",
    "tokens=1|7 n=256 activation=gelu apart=1",
    "tokens=5 n=37 apart=1",
    NULL,
};

static const char *const silu_mul_draws[] = {
    "tokens=~90 n=~3000 activation=silu|gelu spread=2|2|100",
    "tokens=~90 n=~900 activation=silu|gelu apart=1",
    NULL,
};

static void *silu_mul_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    silu_mul_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    bool apart = c->p[APART] != 0;
    int64_t tokens = c->p[TOKENS], n = c->p[N];
    vt_tensor *x = case_tensor_2d(arena, VT_F32, tokens, apart ? n : 2 * n);
    vt_tensor *y = apart ? x : case_tensor_2d(arena, VT_F32, tokens, n);
    vt_tensor *wide = apart ? case_tensor_2d(arena, VT_F32, tokens, 3 * n) : NULL;
    if (!a || !case_fill(arena, x, 0, (float)c->p[SPREAD], &seed) || !y ||
        (apart && !case_fill(arena, wide, 0, 1, &seed)))
        return NULL;
    *a = (silu_mul_args){.x = x,
                         .up = apart ? case_slice(arena, wide, n, n) : NULL,
                         .y = y,
                         .activation = (vt_activation)c->p[ACTIVATION]};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void silu_mul_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                           int64_t *p)
{
    const silu_mul_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
    p[ACTIVATION] = a->activation;
    p[APART] = a->up != NULL;
}

static const vt_impl *const silu_mul_impls[] = {
    CPU_ROWS(silu_mul),
    &silu_mul_cuda_impl,
    NULL,
};

static const vt_operand silu_mul_operands[] = {
    {"x", offsetof(silu_mul_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"up", offsetof(silu_mul_args, up), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(silu_mul_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op silu_mul_op = {
    CARD_OF(silu_mul),
    .what = "multiplies the activated gate with up",
    .tolerance = 2e-6,
    .tolerance_reason = "a polynomial exponential within 1.5e-7 and five fp32 roundings",
};
