/* Soft cap: the card, its row and the reference. */
#include "toy/softcap/softcap.h"

#include <math.h>
#include <stddef.h>

#include "ops/access.h"
#include "ops/cases.h"
#include "ops/cut.h"

/* tanh counts as one flop. */
static vt_cost softcap_cost(const void *args, const vt_batch *batch)
{
    const softcap_args *a = args;
    return (vt_cost){.read = {.activations = vt_batch_bytes(a->x, batch)},
                     .write = {.activations = vt_batch_bytes(a->y, batch)},
                     .flops = {.fp32 = 3 * vt_batch_elems(a->y, batch)}};
}

static void softcap_reference(const void *args)
{
    const softcap_args *a = args;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++)
            tensor_set(a->y, t, i, (float)(a->cap * tanh((double)tensor_get(a->x, t, i) / a->cap)));
}

static vt_status softcap_run(const void *args, const vt_lane *lane)
{
    const softcap_args *a = args;
    int64_t begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++)
            tensor_set(a->y, t, i, a->cap * tanhf(tensor_get(a->x, t, i) / a->cap));
    return VT_OK;
}

static void softcap_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const softcap_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_cpu(out, t, rows, (int32_t)sizeof(float));
}

enum { TOKENS, N, CAP };

static const vt_field softcap_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 4096},
    [CAP] = {"cap", 50, false, 1000},
};

static const char *const softcap_cases[] = {
    "*tokens=1|64 n=4096",
    "tokens=7 n=33 cap=2|50",
    NULL,
};

static const char *const softcap_draws[] = {"tokens=~90 n=~3000 cap=1..60", NULL};

static void *softcap_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                               vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    softcap_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    if (!a || !case_fill(arena, x, 0, 40, &seed) || !y)
        return NULL;
    *a = (softcap_args){.x = x, .y = y, .cap = (float)c->p[CAP]};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void softcap_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const softcap_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
}

static const vt_operand softcap_operands[] = {
    {"x", offsetof(softcap_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"y", offsetof(softcap_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

static const vt_impl softcap_portable = {
    .name = "portable", .device = VT_DEVICE_CPU, .run = softcap_run, .describe = softcap_describe};
static const vt_impl *const softcap_impls[] = {&softcap_portable, NULL};

const vt_op softcap_op = {
    CARD_OF(softcap),
    .what = "keeps values within a bound",
    .tolerance = 1e-6,
    .tolerance_reason = "tanhf is within 2 ulp, and a quotient and a product are rounded",
};
