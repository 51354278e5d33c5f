/* Norms of parts of rows: the card, its portable form and the reference. They move a few numbers
 * for each one computed; on a CPU these lie in L2. */
#include "ops/part_norm/part_norm.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/part_norm/part_norm_impls.h"
#include "ops/simd_portable.h"
#include "ops/part_norm/part_norm_kernel.h"

static vt_cost part_norm_cost(const void *args, const vt_batch *batch)
{
    const part_norm_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch), y = vt_batch_bytes(a->y, batch);
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch) + (a->add ? y : 0),
                 .weights = (a->weight ? vt_tensor_bytes(a->weight) : 0) +
                            (a->gain ? vt_tensor_bytes(a->gain) : 0)},
        .write = {.activations = y},
        /* a square and its sum, a scaling, and what else there is */
        .flops = {.fp32 = (3 + (a->weight != NULL) + (a->add != NULL) + (a->gain != NULL)) * n}};
}

static void part_norm_reference(const void *args)
{
    const part_norm_args *a = args;
    double gain = a->gain ? (double)tensor_get(a->gain, 0, 0) : 1,
           scale = a->scale == 0 ? 1 : (double)a->scale;
    for (int64_t t = 0; t < a->y->dim[0]; t++)
        for (int64_t at = 0; at < a->y->dim[1]; at += a->dim) {
            double sum = 0;
            for (int64_t i = 0; i < a->dim; i++)
                sum += (double)tensor_get(a->x, t, at + i) * (double)tensor_get(a->x, t, at + i);
            double inv = scale / sqrt(sum / a->dim + (double)a->eps);
            for (int64_t i = 0; i < a->dim; i++) {
                double w = a->weight ? (double)tensor_get(a->weight, 0, i) + a->plus_one : 1,
                       add = a->add ? (double)tensor_get(a->add, t, at + i) : 0,
                       v = (double)tensor_get(a->x, t, at + i) * inv * w;
                tensor_set(a->y, t, at + i, (float)(gain * (add + v)));
            }
        }
}

enum { TOKENS, PARTS, DIM, WEIGHT, ADD, GAIN, ONTO, PLUS };

static const char *const ontos[] = {"own", "x", "add", NULL};

static const vt_field part_norm_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [PARTS] = {"parts", 8, false, 1024},
    [DIM] = {"dim", 256, false, 1 << 14},
    [WEIGHT] = {"weight", 1, false, 1, .zero = true},
    [ADD] = {"add", 0, false, 1},
    [GAIN] = {"gain", 0, false, 1},
    [ONTO] = {"onto", 0, false, 2, ontos},
    [PLUS] = {"plus_one", 0, false, 1},
};

static const char *part_norm_refuses(const vt_case *c)
{
    return c->p[ONTO] == 2 && !c->p[ADD] ? "onto: add, which is not there" : NULL;
}

/* onto: where the result goes */
static const char *const part_norm_cases[] = {
    "*tokens=1|512 parts=8 dim=256 weight=0 onto=x",
    "*tokens=1|512 parts=1 dim=2560 add=1 gain=1 onto=add",
    "tokens=5 parts=42 dim=16 add=1 onto=add",
    "tokens=7 parts=3 dim=37 weight=0",
    "tokens=3 parts=1 dim=1 gain=1",
    "tokens=17 parts=1 dim=391 add=1",
    "tokens=3 parts=2 dim=72 add=1 plus_one=1 onto=add",
    NULL,
};

static const char *const part_norm_draws[] = {
    "tokens=~60 parts=~12 dim=~200 weight=0|1 add=0 gain=0|1 onto=own|x",
    "tokens=~60 parts=1|2 dim=~3000 weight=0|1 add=1 gain=0|1 onto=own|x|add plus_one=0|1",
    NULL,
};

/* x is a slice of a wider activation, as in a program. */
static void *part_norm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t dim = c->p[DIM], n = c->p[PARTS] * dim, tokens = c->p[TOKENS];
    part_norm_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *wide = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, n + dim), 0.1f, 1,
                                &seed),
              *add = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, n), 0, 1, &seed),
              *w = case_fill(arena, case_tensor_1d(arena, VT_F32, dim), 1, 0.3f, &seed),
              *gain = case_fill(arena, case_tensor_1d(arena, VT_F32, 1), 0.7f, 0.1f, &seed),
              *y = case_tensor_2d(arena, VT_F32, tokens, n);
    vt_tensor *x = wide ? case_slice(arena, wide, dim, n) : NULL;
    if (!a || !x || !add || !w || !gain || !y)
        return NULL;
    *a = (part_norm_args){.x = x,
                          .weight = c->p[WEIGHT] ? w : NULL,
                          .add = c->p[ADD] ? add : NULL,
                          .gain = c->p[GAIN] ? gain : NULL,
                          .y = c->p[ONTO] == 1   ? x
                               : c->p[ONTO] == 2 ? add
                                                 : y,
                          .dim = (int32_t)dim,
                          .eps = 1e-6f,
                          .scale = c->p[ADD] ? 0.7f : 0,
                          .plus_one = c->p[PLUS] != 0};
    outputs[0] = a->y;
    *n_outputs = 1;
    return a;
}

static void part_norm_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                            int64_t *p)
{
    const part_norm_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[DIM] = a->dim;
    p[PARTS] = a->y->dim[1] / a->dim;
    p[WEIGHT] = a->weight != NULL;
    p[ADD] = a->add != NULL;
    p[GAIN] = a->gain != NULL;
    p[PLUS] = a->plus_one;
}

static const vt_impl *const part_norm_impls[] = {CPU_ROWS(part_norm), &part_norm_cuda, NULL};

static const vt_operand part_norm_operands[] = {
    {"x", offsetof(part_norm_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"weight", offsetof(part_norm_args, weight), VT_OPERAND_F32, true, false, 0},
    {"add", offsetof(part_norm_args, add), VT_OPERAND_ACTIVATION, true, false, 0},
    {"gain", offsetof(part_norm_args, gain), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(part_norm_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op part_norm_op = {
    CARD_OF(part_norm),
    .what = "normalises parts of rows, and joins them with a residual",
    .tolerance = 4e-6,
    .tolerance_reason = "fp32 partial sums against double, and five roundings",
    .refuses = part_norm_refuses,
};
