/* The cap of logits: the card, its portable form and the reference. Memory bounds it: 8 bytes for a
 * logit that was just written. */
#include "ops/logit_cap/logit_cap.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/logit_cap/logit_cap_impls.h"
#include "ops/simd_portable.h"
#include "ops/logit_cap/logit_cap_kernel.h"

/* tanh counts as one flop. */
static vt_cost logit_cap_cost(const void *args, const vt_batch *batch)
{
    const logit_cap_args *a = args;
    int64_t bytes = vt_batch_bytes(a->y, batch);
    return (vt_cost){.read = {.activations = bytes},
                     .write = {.activations = bytes},
                     .flops = {.fp32 = 3 * vt_batch_elems(a->y, batch)}};
}

static void logit_cap_reference(const void *args)
{
    const logit_cap_args *a = args;
    double cap = (double)a->cap;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t i = 0; i < a->y->dim[1]; i++)
            tensor_set(a->y, t, i, (float)(cap * tanh((double)tensor_get(a->y, t, i) / cap)));
}

enum { TOKENS, N, CAP, SPREAD };

static const vt_field logit_cap_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [N] = {"n", 262144, false, 1 << 24},
    [CAP] = {"cap", 30, false, 1000},
    [SPREAD] = {"spread", 20, false, 10000},
};

/* spread: the deviation of the logits */
static const char *const logit_cap_cases[] = {
    "*tokens=1|16 n=262144",
    "tokens=7 n=33 cap=2|50",
    "tokens=2 n=4099 spread=10000",
    NULL,
};

static const char *const logit_cap_draws[] = {"tokens=~20 n=~9000 cap=1..60 spread=1..100", NULL};

static void *logit_cap_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    logit_cap_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, c->p[TOKENS], c->p[N]);
    if (!a || !case_fill(arena, y, 0, (float)c->p[SPREAD], &seed))
        return NULL;
    *a = (logit_cap_args){.y = y, .cap = (float)c->p[CAP]};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void logit_cap_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                            int64_t *p)
{
    const logit_cap_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[N] = a->y->dim[1];
}

static const vt_impl *const logit_cap_impls[] = {CPU_ROWS(logit_cap), &logit_cap_cuda, NULL};

static const vt_operand logit_cap_operands[] = {
    {"y", offsetof(logit_cap_args, y), VT_OPERAND_F32, true, true, 0},
};

const vt_op logit_cap_op = {
    CARD_OF(logit_cap),
    .what = "keeps logits within a bound",
    .tolerance = 1e-5,
    .tolerance_reason = "a polynomial exponential within 1.5e-7 of an argument that is rounded, "
                        "times a cap that may be some times the logits",
};
