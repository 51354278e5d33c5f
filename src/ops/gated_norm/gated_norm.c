/* Gated norm of heads: the card, its portable form and the reference. It moves 12 bytes for each
 * output; on a CPU its inputs lie in L2. */
#include "ops/gated_norm/gated_norm.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/gated_norm/gated_norm_impls.h"
#include "ops/simd_portable.h"
#include "ops/gated_norm/gated_norm_kernel.h"

static vt_cost gated_norm_cost(const void *args, const vt_batch *batch)
{
    const gated_norm_args *a = args;
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch) + vt_batch_bytes(a->z, batch),
                 .weights = vt_tensor_bytes(a->weight)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        /* 4 of the norm, 4 of silu, 1 to join them */
        .flops = {.fp32 = 9 * vt_batch_elems(a->y, batch)},
    };
}

static double gate(const gated_norm_args *a, int64_t t, int64_t i)
{
    double z = tensor_get(a->z, t, i);
    return (a->sigmoid ? 1 : z) / (1 + exp(-z));
}

static void gated_norm_reference(const void *args)
{
    const gated_norm_args *a = args;
    int64_t n = gated_norm_dim(a);
    bool first = a->groups > 0;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t at = 0; at < a->y->dim[1]; at += n) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                double v = tensor_get(a->x, t, at + i) * (first ? gate(a, t, at + i) : 1);
                sum += v * v;
            }
            double inv = 1 / sqrt(sum / (double)n + a->eps);
            for (int64_t i = 0; i < n; i++) {
                double w = tensor_get(a->weight, 0, first ? at + i : i);
                double y = tensor_get(a->x, t, at + i) * inv * w * gate(a, t, at + i);
                tensor_set(a->y, t, at + i, (float)y);
            }
        }
}

enum { TOKENS, HEADS, DIM, FORM, GATE };

static const char *const forms[] = {"heads", "groups", NULL};
static const char *const gates[] = {"silu", "sigmoid", NULL};

static const vt_field gated_norm_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HEADS] = {"heads", 32, false, 1024},
    [DIM] = {"dim", 128, false, 1 << 14},
    [FORM] = {"form", 0, false, 1, forms},
    [GATE] = {"gate", 0, false, 1, gates},
};

static const char *gated_norm_refuses(const vt_case *c)
{
    return c->p[GATE] && c->p[FORM] ? "gate: sigmoid of heads, not of groups" : NULL;
}

static const char *const gated_norm_cases[] = {
    "*tokens=1|512 heads=32 dim=128",
    "tokens=3 heads=1|5 dim=1|37",
    "tokens=2 heads=3 dim=256",
    "*tokens=1|512 heads=1 dim=3072 form=groups",
    "tokens=3 heads=1|4 dim=37|600 form=groups",
    "*tokens=1|512 heads=32 dim=128 gate=sigmoid",
    "tokens=3 heads=1|5 dim=1|37 gate=sigmoid",
    NULL,
};

static const char *const gated_norm_draws[] = {
    "tokens=~60 heads=~12 dim=~200",
    "tokens=~60 heads=~12 dim=64|128",
    "tokens=~20 heads=1|2|8 dim=~900 form=groups",
    "tokens=~60 heads=~12 dim=~200 gate=sigmoid",
    NULL,
};

/* z is a slice of a wider activation, as in a program. */
static void *gated_norm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t tokens = c->p[TOKENS], n = c->p[HEADS] * c->p[DIM];
    gated_norm_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    if (!a)
        return NULL;
    vt_tensor *wide = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, 2 * n), 0, 2, &seed);
    *a = (gated_norm_args){
        .x = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, n), 0, 1, &seed),
        .z = case_slice(arena, wide, n, n),
        .weight = case_fill(arena, case_tensor_1d(arena, VT_F32, c->p[FORM] ? n : c->p[DIM]), 1,
                            0.1f, &seed),
        .y = case_tensor_2d(arena, VT_F32, tokens, n),
        .eps = 1e-6f,
        .groups = c->p[FORM] ? (int32_t)c->p[HEADS] : 0,
        .sigmoid = c->p[GATE] != 0};
    outputs[0] = a->y;
    *n_outputs = 1;
    return a->x && a->z && a->weight && a->y ? a : NULL;
}

static void gated_norm_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                             int64_t *p)
{
    const gated_norm_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[DIM] = gated_norm_dim(a);
    p[HEADS] = a->y->dim[1] / p[DIM];
    p[FORM] = a->groups > 0;
    p[GATE] = a->sigmoid;
}

static const vt_impl *const gated_norm_impls[] = {
    CPU_ROWS(gated_norm),
    &gated_norm_cuda,
    NULL,
};

static const vt_operand gated_norm_operands[] = {
    {"x", offsetof(gated_norm_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"z", offsetof(gated_norm_args, z), VT_OPERAND_ACTIVATION, true, false, 0},
    {"weight", offsetof(gated_norm_args, weight), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(gated_norm_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op gated_norm_op = {
    CARD_OF(gated_norm),
    .what =
        "divides each head, or each gated group, by its root mean square; gates heads behind it",
    .tolerance = 4e-6,
    .tolerance_reason = "sums of fp32 squares, 16 or more of which stand side by side, a "
                        "polynomial exponential within 1.5e-7 "
                        "and eight roundings",
    .refuses = gated_norm_refuses,
};
