/* LayerNorm: the card and its portable form. Memory bounds it: it moves 8 bytes for 8 flops an
 * element. On the CPU the rows of a step stay in L2, and a row's second and third read hit L1. */
#include "ops/layernorm/layernorm.h"

#include <math.h>

#include "ops/cases.h"
#include "ops/layernorm/layernorm_impls.h"
#include "ops/simd_portable.h"
#include "ops/layernorm/layernorm_kernel.h"

static vt_cost layernorm_cost(const void *args, const vt_batch *batch)
{
    const layernorm_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch);
    vt_cost c = {
        .read = {.activations = vt_dtype_row_bytes(a->x->dtype, n),
                 .weights = vt_batch_bytes(a->weight, batch) +
                            (a->bias ? vt_batch_bytes(a->bias, batch) : 0)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        /* a sum, a difference, a square and its sum, two scalings, and the bias */
        .flops = {.fp32 = (a->bias ? 7 : 6) * n},
    };
    if (a->row)
        c.read.activations += vt_batch_rows(a->y, batch) * (int64_t)sizeof(int32_t);
    return c;
}

static void layernorm_reference(const void *args)
{
    const layernorm_args *a = args;
    int64_t n = a->y->dim[1];
    for (int64_t t = 0; t < a->y->dim[0]; t++) {
        int64_t from = a->row ? (*a->row)[t] : t;
        double mean = 0, sum = 0;
        for (int64_t i = 0; i < n; i++)
            mean += (double)tensor_get(a->x, from, i) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double v = (double)tensor_get(a->x, from, i) - mean;
            sum += v * v;
        }
        double inv = 1 / sqrt(sum / (double)n + (double)a->eps);
        for (int64_t i = 0; i < n; i++) {
            double v = ((double)tensor_get(a->x, from, i) - mean) * inv,
                   b = a->bias ? (double)tensor_get(a->bias, 0, i) : 0;
            tensor_set(a->y, t, i, (float)(v * (double)tensor_get(a->weight, 0, i) + b));
        }
    }
}

enum { TOKENS, HIDDEN, ROWS, TYPE, BIAS, OFFSET, IN_PLACE };

static const vt_field layernorm_fields[] = {
    [TOKENS] = {"tokens", 1, false, 1 << 20, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 768},
    [ROWS] = {"rows", 0, .grows = VT_GROWS_TOKENS},
    [TYPE] = {"type", VT_F32, true},
    [BIAS] = {"bias", 1, false, 1, .zero = true},
    [OFFSET] = {"offset", 0, false, 1000},
    [IN_PLACE] = {"in_place", 0, false, 1},
};

static const char *layernorm_refuses(const vt_case *c)
{
    if (c->p[TYPE] > VT_BF16)
        return "type: the norm's weights are f32, f16 or bf16";
    if (c->p[ROWS] > c->p[TOKENS])
        return "rows: at most as many as tokens";
    return c->p[ROWS] && c->p[IN_PLACE] ? "in_place: not with rows" : NULL;
}

/* rows: 0 for a call without an index; offset: the mean of x, whose deviation is 1 */
static const char *const layernorm_cases[] = {
    "*tokens=1|512 hidden=384",
    "*tokens=2048 hidden=1024",
    "tokens=17 hidden=20",
    "tokens=3 hidden=1 type=f16",
    "tokens=5 hidden=1027 type=bf16 bias=0",
    "tokens=33 hidden=640 rows=4",
    "tokens=6 hidden=384 type=f16 in_place=1",
    "tokens=6 hidden=391 offset=20",
    NULL,
};

static const char *const layernorm_draws[] = {
    "tokens=~600 hidden=1|24|64|128|384|1024|1027|5120 rows=0|0|0|~20 type=f32|bf16 bias=0|1 "
    "offset=0|0|10 in_place=0|0|1",
    NULL,
};

static void *layernorm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t tokens = c->p[TOKENS], hidden = c->p[HIDDEN], rows = c->p[ROWS];
    vt_dtype type = (vt_dtype)c->p[TYPE];
    layernorm_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, hidden),
                             0.1f + (float)c->p[OFFSET], 1, &seed);
    vt_tensor *w = case_fill(arena, case_tensor_1d(arena, type, hidden), 1, 0.3f, &seed);
    vt_tensor *b = case_fill(arena, case_tensor_1d(arena, type, hidden), 0, 0.3f, &seed);
    vt_tensor *y = c->p[IN_PLACE] ? x : case_tensor_2d(arena, VT_F32, rows ? rows : tokens, hidden);
    if (!a || !x || !w || !b || !y)
        return NULL;
    *a = (layernorm_args){.x = x, .weight = w, .bias = c->p[BIAS] ? b : NULL, .y = y, .eps = 1e-5f};
    outputs[0] = y;
    *n_outputs = 1;
    a->row = case_rows(arena, rows, tokens);
    return rows == 0 || a->row ? a : NULL;
}

static void layernorm_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                            int64_t *p)
{
    const layernorm_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[HIDDEN] = a->x->dim[1];
    p[TYPE] = a->weight->dtype;
    p[BIAS] = a->bias != NULL;
    if (a->row) {
        int64_t rows = vt_batch_rows(a->y, batch);
        p[ROWS] = rows < 1 ? 1 : rows > p[TOKENS] ? p[TOKENS] : rows;
    }
}

static const vt_impl *const layernorm_impls[] = {
    CPU_ROWS(layernorm),
    &layernorm_cuda,
    NULL,
};

static const vt_operand layernorm_operands[] = {
    {"x", offsetof(layernorm_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"row", offsetof(layernorm_args, row), VT_OPERAND_INDEX, true, false, 0},
    {"weight", offsetof(layernorm_args, weight), VT_OPERAND_F32, true, false, 0},
    {"bias", offsetof(layernorm_args, bias), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(layernorm_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op layernorm_op = {
    CARD_OF(layernorm),
    .what = "brings each row to mean 0 and variance 1, then scales and shifts it",
    .tolerance = 5e-6,
    .tolerance_reason = "fp32 sums in partial sums against double; a mean of 20 deviations costs "
                        "digits",
    .refuses = layernorm_refuses,
};
