/* MoE routing: the card, the portable row and the reference. */
#include "ops/moe/moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
                            (a->bias && tokens > 0 ? vt_tensor_bytes(a->bias) : 0) +
                            (a->choice && tokens > 0 ? vt_tensor_bytes(a->choice) : 0) +
                            (a->by_expert && tokens > 0 ? vt_tensor_bytes(a->by_expert) : 0),
                 .activations = vt_batch_bytes(a->x, batch)},
        .write = {.activations = tokens * a->k * 8},
        .flops = {.fp32 = tokens * experts *
                          (2 * a->router->dim[1] + 3)}, /* softmax: subtract, exp, add */
    };
}

/* Scratch of one token's choice. */
typedef struct reference_state {
    double *p, *key; /* [experts] the weight, and what is compared: NaN counts as -infinity */
    double *group;   /* [experts] a group's sum of its two largest keys; only so many are used */
    bool *taken;     /* [experts] */
} reference_state;

static void reference_scores(const moe_route_args *a, int64_t t, const reference_state *s)
{
    int32_t experts = (int32_t)a->router->dim[0];
    double max = -INFINITY, sum = 0;
    for (int32_t e = 0; e < experts; e++) {
        double logit = a->bias ? (double)tensor_get(a->bias, 0, e) : 0;
        for (int64_t i = 0; i < a->router->dim[1]; i++)
            logit += (double)tensor_get(a->x, t, i) * tensor_get(a->router, e, i);
        s->p[e] = logit;
        s->key[e] = a->sigmoid ? 1 / (1 + exp(-logit)) : logit;
        s->key[e] += a->choice ? (double)tensor_get(a->choice, 0, e) : 0;
        s->key[e] = isnan(s->key[e]) ? -INFINITY : s->key[e];
        max = fmax(max, logit);
    }
    for (int32_t e = 0; e < experts; e++)
        sum += exp(s->p[e] - max);
    for (int32_t e = 0; e < experts; e++)
        s->p[e] = a->sigmoid ? 1 / (1 + exp(-s->p[e])) : exp(s->p[e] - max) / sum;
}

/* Returns the place of the largest of n keys that are not taken, the first of equal ones, and marks
 * it as taken. */
static int32_t reference_best(const double *key, int32_t n, bool *taken)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || key[i] > key[best]))
            best = i;
    taken[best] = true;
    return best;
}

/* Makes the keys of all experts outside of the best groups -infinity. */
static void reference_groups(const moe_route_args *a, const reference_state *s)
{
    int32_t experts = (int32_t)a->router->dim[0], size = experts / a->groups;
    memset(s->taken, 0, (size_t)experts);
    for (int32_t g = 0; g < a->groups; g++)
        s->group[g] =
            s->key[g * size + reference_best(s->key + g * size, size, s->taken + g * size)] +
            s->key[g * size + reference_best(s->key + g * size, size, s->taken + g * size)];
    memset(s->taken, 0, (size_t)experts);
    for (int32_t i = 0; i < a->groups_used; i++)
        reference_best(s->group, a->groups, s->taken);
    for (int32_t e = 0; e < experts; e++)
        s->key[e] = s->taken[e / size] ? s->key[e] : -INFINITY;
}

/* Chooses k experts of one token; no expert is chosen twice. */
static void reference_token(const moe_route_args *a, int64_t t, const reference_state *s)
{
    int32_t experts = (int32_t)a->router->dim[0];
    int32_t *expert = (int32_t *)a->expert->data + t * a->expert->row_stride;
    double chosen = a->sigmoid ? 1e-20 : 0, scale = a->scale == 0 ? 1 : (double)a->scale;
    reference_scores(a, t, s);
    if (a->groups)
        reference_groups(a, s);
    memset(s->taken, 0, (size_t)experts);
    for (int32_t j = 0; j < a->k; j++) {
        expert[j] = reference_best(s->key, experts, s->taken);
        chosen += s->p[expert[j]];
    }
    for (int32_t j = 0; j < a->k; j++) {
        double own = a->by_expert ? (double)tensor_get(a->by_expert, 0, expert[j]) : 1;
        double p = s->p[expert[j]] * scale * own / (a->normalise ? chosen : 1);
        bool own_rank = a->mine == 0 || (expert[j] >= a->first && expert[j] < a->first + a->mine);
        tensor_set(a->weight, t, j, own_rank ? (float)p : 0);
        expert[j] = own_rank ? expert[j] - a->first : -1;
    }
}

static void moe_route_reference(const void *args)
{
    const moe_route_args *a = args;
    size_t n = (size_t)a->router->dim[0];
    double *numbers = malloc(3 * n * sizeof *numbers);
    bool *taken = malloc(n * sizeof *taken);
    reference_state s = {numbers, numbers + n, numbers + 2 * n, taken};
    for (int64_t t = 0; numbers && taken && t < a->x->dim[0]; t++)
        reference_token(a, t, &s);
    free(taken);
    free(numbers);
}

enum {
    TOKENS,
    HIDDEN,
    EXPERTS,
    USED,
    NORMALISE,
    TYPE,
    BIAS,
    SIGMOID,
    CHOICE,
    GROUPS,
    KEPT,
    SCALE,
    OWN,
    MINE
};

static const vt_field moe_route_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 2048, false, 1 << 16},
    [EXPERTS] = {"experts", 128, false, 4096},
    [USED] = {"k", 8, false, 4096},
    [NORMALISE] = {"normalise", 1, false, 1, .zero = true},
    [TYPE] = {"type", VT_F32, true},
    [BIAS] = {"bias", 0, false, 1},
    [SIGMOID] = {"sigmoid", 0, false, 1},
    [CHOICE] = {"choice", 0, false, 1},
    [GROUPS] = {"groups", 0, false, 4096},
    [KEPT] = {"kept", 0, false, 4096},
    [SCALE] = {"scaled", 0, false, 1},
    [OWN] = {"own", 0, false, 1},
    [MINE] = {"mine", 0, false, 4096},
};

static const char *moe_route_refuses(const vt_case *c)
{
    const int64_t *p = c->p;
    if (p[TYPE] > VT_BF16)
        return "type: the router is f32, f16 or bf16";
    if ((p[CHOICE] || p[GROUPS]) && !p[SIGMOID])
        return "choice, groups: of sigmoids alone";
    if (p[GROUPS] && (p[EXPERTS] % p[GROUPS] != 0 || p[EXPERTS] / p[GROUPS] < 2))
        return "groups: of two experts or more each";
    if (p[GROUPS] ? p[KEPT] < 1 || p[KEPT] > p[GROUPS] : p[KEPT] != 0)
        return "kept: at least one group, at most all of them";
    if (p[GROUPS] && p[USED] > p[EXPERTS] / p[GROUPS] * p[KEPT])
        return "k: at most as many as experts of the groups that are kept";
    if (p[MINE] > p[EXPERTS])
        return "mine: at most as many as experts";
    return p[USED] > p[EXPERTS] ? "k: at most as many as experts" : NULL;
}

/* `type` is that of the router; own: every expert has a factor of its own; mine: a rank has so many
 * experts, the last ones. */
static const char *const moe_route_cases[] = {
    "*tokens=1 hidden=2048 experts=128 k=8",
    "*tokens=512 hidden=2048 experts=128 k=8",
    "tokens=7 hidden=36 experts=5 k=2 normalise=0 type=f16",
    "tokens=3 hidden=1027 experts=17 k=17 type=bf16",
    "tokens=4 hidden=64 experts=1 k=1 normalise=0",
    "tokens=9 hidden=96 experts=32 k=4 bias=1",
    "tokens=9 hidden=96 experts=32 k=4 own=1",
    "tokens=5 hidden=33 experts=7 k=3 normalise=0 type=bf16 bias=1",
    "tokens=9 hidden=96 experts=32 k=4 own=1 mine=11",
    "tokens=9 hidden=96 experts=32 k=4 sigmoid=1 choice=1 scaled=1 mine=32",
    "tokens=9 hidden=96 experts=32 k=4 sigmoid=1 choice=1 scaled=1",
    "tokens=6 hidden=40 experts=5 k=3 sigmoid=1 normalise=0 bias=1",
    "tokens=17 hidden=64 experts=24 k=5 sigmoid=1 choice=1 groups=6 kept=2 scaled=1",
    "tokens=33 hidden=128 experts=256 k=8 sigmoid=1 choice=1 groups=8 kept=4 scaled=1",
    "tokens=300 hidden=200 experts=200 k=4",
    "tokens=1030 hidden=72 experts=33 k=2 bias=1 normalise=0",
    "tokens=520 hidden=40 experts=100 k=3 own=1",
    "tokens=2077 hidden=136 experts=140 k=6 sigmoid=1 choice=1 groups=7 kept=3 scaled=1",
    "tokens=5 hidden=33 experts=70 k=9 sigmoid=1 choice=1 groups=35 kept=20 normalise=0",
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
    vt_tensor *choice = case_fill(arena, case_tensor_1d(arena, VT_F32, c->p[EXPERTS]), 0, 0.3f,
                                  &seed);
    vt_tensor *own = case_fill(arena, case_tensor_1d(arena, VT_F32, c->p[EXPERTS]), 1, 0.3f, &seed);
    if (!a || !x || !router || !bias || !choice || !own)
        return NULL;
    *a = (moe_route_args){.x = x,
                          .router = router,
                          .bias = c->p[BIAS] ? bias : NULL,
                          .choice = c->p[CHOICE] ? choice : NULL,
                          .by_expert = c->p[OWN] ? own : NULL,
                          .k = (int32_t)c->p[USED],
                          .normalise = c->p[NORMALISE] != 0,
                          .sigmoid = c->p[SIGMOID] != 0,
                          .groups = (int32_t)c->p[GROUPS],
                          .groups_used = (int32_t)c->p[KEPT],
                          .scale = c->p[SCALE] ? 2.5f : 0,
                          .first = c->p[MINE] ? (int32_t)(c->p[EXPERTS] - c->p[MINE]) : 0,
                          .mine = (int32_t)c->p[MINE],
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
    p[SIGMOID] = a->sigmoid;
    p[CHOICE] = a->choice != NULL;
    p[GROUPS] = a->groups;
    p[KEPT] = a->groups_used;
    p[SCALE] = a->scale != 0 && a->scale != 1;
    p[OWN] = a->by_expert != NULL;
    p[MINE] = a->mine;
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
    {"choice", offsetof(moe_route_args, choice), VT_OPERAND_F32, true, false, 0},
    {"by_expert", offsetof(moe_route_args, by_expert), VT_OPERAND_F32, true, false, 0},
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
