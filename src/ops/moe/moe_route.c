/* MoE routing: the card, the portable row and the reference. */
#include "ops/moe/moe.h"

#include <math.h>
#include <stdlib.h>

#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/simd_portable.h"
#include "ops/moe/moe_impls.h"
#include "ops/moe/moe_route_kernel.h"

static vt_cost moe_route_cost(const void *args, const vt_batch *batch)
{
    const moe_route_args *a = args;
    int64_t tokens = vt_batch_rows(a->x, batch), experts = a->router->dim[0];
    return (vt_cost){
        .read = {.weights = vt_batch_bytes(a->router, batch) +
                            (a->bias && tokens > 0 ? vt_tensor_bytes(a->bias) : 0),
                 .activations = vt_batch_bytes(a->x, batch)},
        .write = {.activations = tokens * a->k * 8},
        .flops = {.fp32 = tokens * experts *
                          (2 * a->router->dim[1] + 3)}, /* softmax: subtract, exp, add */
    };
}

/* Chooses k experts of one token by their logits; NaN counts as -infinity. An expert that is taken
 * is marked in `taken`, so no expert is chosen twice. */
static void reference_token(const moe_route_args *a, int64_t t, double *logit, bool *taken)
{
    int32_t experts = (int32_t)a->router->dim[0];
    double max = -INFINITY, sum = 0, chosen = 0;
    for (int32_t e = 0; e < experts; e++) {
        logit[e] = 0;
        taken[e] = false;
        for (int64_t i = 0; i < a->router->dim[1]; i++)
            logit[e] += (double)tensor_get(a->x, t, i) * tensor_get(a->router, e, i);
        logit[e] += a->bias ? (double)tensor_get(a->bias, 0, e) : 0;
        max = fmax(max, logit[e]);
    }
    for (int32_t e = 0; e < experts; e++) {
        sum += exp(logit[e] - max);
        logit[e] = isnan(logit[e]) ? -INFINITY : logit[e];
    }
    int32_t *expert = (int32_t *)a->expert->data + t * a->expert->row_stride;
    for (int32_t j = 0; j < a->k; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < experts; e++)
            if (!taken[e] && (best < 0 || logit[e] > logit[best]))
                best = e;
        expert[j] = best;
        taken[best] = true;
        double p = exp(logit[best] - max) / sum;
        chosen += p;
        tensor_set(a->weight, t, j, (float)p);
    }
    for (int32_t j = 0; a->normalise && j < a->k; j++)
        tensor_set(a->weight, t, j, (float)(tensor_get(a->weight, t, j) / chosen));
}

static void moe_route_reference(const void *args)
{
    const moe_route_args *a = args;
    size_t experts = (size_t)a->router->dim[0];
    double *logit = malloc(experts * sizeof *logit);
    bool *taken = malloc(experts * sizeof *taken);
    for (int64_t t = 0; logit && taken && t < a->x->dim[0]; t++)
        reference_token(a, t, logit, taken);
    free(taken);
    free(logit);
}

enum { TOKENS, HIDDEN, EXPERTS, USED, NORMALISE, TYPE, BIAS };

static const vt_field moe_route_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 2048, false, 1 << 16},
    [EXPERTS] = {"experts", 128, false, 4096},
    [USED] = {"k", 8, false, 4096},
    [NORMALISE] = {"normalise", 1, false, 1, .zero = true},
    [TYPE] = {"type", VT_F32, true},
    [BIAS] = {"bias", 0, false, 1},
};

static const char *moe_route_refuses(const vt_case *c)
{
    if (c->p[TYPE] > VT_BF16)
        return "type: the router is f32, f16 or bf16";
    return c->p[USED] > c->p[EXPERTS] ? "k: at most as many as experts" : NULL;
}

/* `type` is that of the router. */
static const char *const moe_route_cases[] = {
    "*tokens=1 hidden=2048 experts=128 k=8",
    "*tokens=512 hidden=2048 experts=128 k=8",
    "tokens=7 hidden=36 experts=5 k=2 normalise=0 type=f16",
    "tokens=3 hidden=1027 experts=17 k=17 type=bf16",
    "tokens=4 hidden=64 experts=1 k=1 normalise=0",
    "tokens=9 hidden=96 experts=32 k=4 bias=1",
    "tokens=5 hidden=33 experts=7 k=3 normalise=0 type=bf16 bias=1",
    NULL,
};

static void *moe_route_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    moe_route_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[HIDDEN]), 0, 1,
                             &seed);
    vt_tensor *router = case_fill(
        arena, case_tensor_2d(arena, (vt_dtype)c->p[TYPE], c->p[EXPERTS], c->p[HIDDEN]), 0,
        2 / sqrtf((float)c->p[HIDDEN]), &seed);
    vt_tensor *bias = case_fill(arena, case_tensor_1d(arena, (vt_dtype)c->p[TYPE], c->p[EXPERTS]),
                                0, 1, &seed);
    if (!a || !x || !router || !bias)
        return NULL;
    *a = (moe_route_args){.x = x,
                          .router = router,
                          .bias = c->p[BIAS] ? bias : NULL,
                          .k = (int32_t)c->p[USED],
                          .normalise = c->p[NORMALISE] != 0,
                          .expert = case_tensor_2d(arena, VT_I32, c->p[TOKENS], c->p[USED]),
                          .weight = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[USED])};
    outputs[0] = a->expert;
    outputs[1] = a->weight;
    *n_outputs = 2;
    return a->expert && a->weight ? a : NULL;
}

static void moe_route_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                            int64_t *p)
{
    const moe_route_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[HIDDEN] = a->router->dim[1];
    p[EXPERTS] = a->router->dim[0];
    p[USED] = a->k;
    p[NORMALISE] = a->normalise;
    p[TYPE] = a->router->dtype;
    p[BIAS] = a->bias != NULL;
}

static const vt_impl *const moe_route_impls[] = {
    CPU_ROWS(moe_route),
    &moe_route_cuda_impl,
    &moe_route_cuda_any_impl,
    NULL,
};

static const vt_operand moe_route_operands[] = {
    {"x", offsetof(moe_route_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"router", offsetof(moe_route_args, router), VT_OPERAND_F32, true, false, 0},
    {"bias", offsetof(moe_route_args, bias), VT_OPERAND_F32, true, false, 0},
    {"expert", offsetof(moe_route_args, expert), VT_OPERAND_INT, false, true, 0},
    {"weight", offsetof(moe_route_args, weight), VT_OPERAND_F32, false, true, 0},
};

const vt_op moe_route_op = {
    CARD_CALL(moe_route),
    .fields = moe_route_fields,
    .n_fields = sizeof moe_route_fields / sizeof *moe_route_fields,
    .cases = moe_route_cases,
    .make_args = moe_route_make_args,
    .shape = moe_route_shape,
    .what = "chooses each token's experts and their weights",
    .tolerance = 2e-6,
    .tolerance_reason = "fp32 dot products and expf against double; the chosen experts are exact",
    .refuses = moe_route_refuses,
    .no_draw = "among near ties another expert would be as right",
    .is = VT_OP_HEAVY,
};
