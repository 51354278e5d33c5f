/* RMSNorm: the cards of rmsnorm and add_rmsnorm, and their portable form.
 *
 * Memory bounds it at every size that matters: it moves 8 bytes for 4 flops per element. On the CPU
 * the rows of a step stay in L2. x is read from there once; the second read hits L1. */
#include "ops/rmsnorm/rmsnorm.h"

#include <math.h>

#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/rmsnorm/rmsnorm_impls.h"
#include "ops/simd_portable.h"
#include "ops/rmsnorm/rmsnorm_kernel.h"

static vt_cost rmsnorm_cost(const void *args, const vt_batch *batch)
{
    const rmsnorm_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch);
    vt_cost c = {
        .read = {.activations = vt_dtype_row_bytes(a->x->dtype, n),
                 .weights = vt_batch_bytes(a->weight, batch)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        .flops = {.fp32 = 4 * n}, /* square, add, two scalings; one root per row */
    };
    if (a->row)
        c.read.activations += vt_batch_rows(a->y, batch) * (int64_t)sizeof(int32_t);
    return c;
}

static vt_cost add_rmsnorm_cost(const void *args, const vt_batch *batch)
{
    const rmsnorm_args *a = args;
    vt_cost c = rmsnorm_cost(args, batch);
    c.read.activations += vt_batch_bytes(a->residual, batch);
    c.write.activations += vt_batch_bytes(a->residual, batch);
    c.flops.fp32 += vt_batch_elems(a->y, batch);
    return c;
}

static double weight_at(const rmsnorm_args *a, int64_t i)
{
    return (double)tensor_get(a->weight, 0, i) + (a->plus_one ? 1 : 0);
}

static void rmsnorm_reference(const void *args)
{
    const rmsnorm_args *a = args;
    int64_t n = a->y->dim[1];
    for (int64_t t = 0; t < a->y->dim[0]; t++) {
        int64_t from = a->row ? (*a->row)[t] : t;
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)tensor_get(a->x, from, i) * tensor_get(a->x, from, i);
        double inv = 1 / sqrt(sum / (double)n + a->eps);
        for (int64_t i = 0; i < n; i++)
            tensor_set(a->y, t, i, (float)(tensor_get(a->x, from, i) * inv * weight_at(a, i)));
    }
}

static void add_rmsnorm_reference(const void *args)
{
    const rmsnorm_args *a = args;
    int64_t n = a->y->dim[1];
    for (int64_t t = 0; t < a->y->dim[0]; t++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double s = (double)tensor_get(a->x, t, i) + tensor_get(a->residual, t, i);
            sum += s * s;
        }
        double inv = 1 / sqrt(sum / (double)n + a->eps);
        for (int64_t i = 0; i < n; i++) {
            double s = (double)tensor_get(a->x, t, i) + tensor_get(a->residual, t, i);
            tensor_set(a->residual, t, i, (float)s);
            tensor_set(a->y, t, i, (float)(s * inv * weight_at(a, i)));
        }
    }
}

enum { TOKENS, HIDDEN, ROWS, TYPE, PLUS_ONE, IN_PLACE };

static const vt_field rmsnorm_fields[] = {
    [TOKENS] = {"tokens", 1, false, 1 << 20, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 4096},
    [ROWS] = {"rows", 0, .grows = VT_GROWS_TOKENS},
    [TYPE] = {"type", VT_F32, true},
    [PLUS_ONE] = {"plus_one", 0, false, 1},
    [IN_PLACE] = {"in_place", 0, false, 1},
};

static const char *rmsnorm_refuses(const vt_case *c)
{
    if (c->p[TYPE] > VT_BF16)
        return "type: the norm's weights are f32, f16 or bf16";
    if (c->p[ROWS] > c->p[TOKENS])
        return "rows: at most as many as tokens";
    return c->p[ROWS] && c->p[IN_PLACE] ? "in_place: not with rows" : NULL;
}

/* rows: 0 for a call without an index. add_rmsnorm has no use for rows and in_place. */
static const char *const rmsnorm_cases[] = {
    "*tokens=1 hidden=576",
    "*tokens=512 hidden=576",
    "*tokens=2048 hidden=4096",
    "tokens=17 hidden=20",
    "tokens=3 hidden=1 type=f16",
    "tokens=5 hidden=1027 type=bf16 plus_one=1",
    "tokens=33 hidden=640 rows=4",
    "tokens=6 hidden=576 type=f16 in_place=1",
    NULL,
};

static const char *const rmsnorm_draws[] = {
    "tokens=~600 hidden=1|24|64|128|576|1024|1027|5120 rows=0|0|0|~20 plus_one=0|1 in_place=0|0|1",
    NULL,
};

static void *make_args(const vt_case *c, uint64_t seed, vt_arena *arena, bool add,
                       vt_tensor **outputs, int32_t *n_outputs)
{
    int64_t tokens = c->p[TOKENS], hidden = c->p[HIDDEN], rows = add ? 0 : c->p[ROWS];
    bool in_place = c->p[IN_PLACE] && !add;
    rmsnorm_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, hidden), 0.1f, 1, &seed);
    vt_tensor *w = case_fill(arena, case_tensor_1d(arena, (vt_dtype)c->p[TYPE], hidden), 1, 0.3f,
                             &seed);
    vt_tensor *y = in_place ? x : case_tensor_2d(arena, VT_F32, rows ? rows : tokens, hidden);
    if (!a || !x || !w || !y)
        return NULL;
    *a = (rmsnorm_args){.x = x, .weight = w, .y = y, .eps = 1e-5f, .plus_one = c->p[PLUS_ONE] != 0};
    outputs[(*n_outputs)++] = y;
    a->row = case_rows(arena, rows, tokens);
    if (rows && !a->row)
        return NULL;
    if (add) {
        a->residual = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, hidden), 0, 1, &seed);
        outputs[(*n_outputs)++] = a->residual;
        return a->residual ? a : NULL;
    }
    return a;
}

static void *rmsnorm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                               vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    *n_outputs = 0;
    return make_args(c, seed, arena, false, outputs, n_outputs);
}

static void *add_rmsnorm_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    *n_outputs = 0;
    return make_args(c, seed, arena, true, outputs, n_outputs);
}

static void rmsnorm_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const rmsnorm_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[HIDDEN] = a->x->dim[1];
    p[TYPE] = a->weight->dtype;
    if (a->row) {
        int64_t rows = vt_batch_rows(a->y, batch);
        p[ROWS] = rows < 1 ? 1 : rows > p[TOKENS] ? p[TOKENS] : rows;
    }
}

static const vt_impl *const rmsnorm_impls[] = {
    CPU_ROWS(rmsnorm),
    &rmsnorm_cuda_impl,
    NULL,
};

static const vt_impl *const add_rmsnorm_impls[] = {
    CPU_ROWS(add_rmsnorm),
    &add_rmsnorm_cuda_impl,
    NULL,
};

static const vt_impl *const add_rmsnorm_variants[] = {
#if defined(__x86_64__)
    &add_then_norm_avx512,
    &add_then_norm_avx2,
#elif defined(__aarch64__)
    &add_then_norm_neon,
#endif
    &add_rmsnorm_cuda_apart,
    NULL,
};

static const vt_operand rmsnorm_operands[] = {
    {"x", offsetof(rmsnorm_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"row", offsetof(rmsnorm_args, row), VT_OPERAND_INDEX, true, false, 0},
    {"weight", offsetof(rmsnorm_args, weight), VT_OPERAND_F32, true, false, 0},
    {"residual", offsetof(rmsnorm_args, residual), VT_OPERAND_ACTIVATION, true, true, 0},
    {"y", offsetof(rmsnorm_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

/* The members that both cards share. */
#define RMSNORM_CARD                                                                      \
    .args_size = sizeof(rmsnorm_args), .tolerance = 2e-6,                                 \
    .tolerance_reason = "fp32 sum of squares in partial sums against double",             \
    .fields = rmsnorm_fields, .n_fields = sizeof rmsnorm_fields / sizeof *rmsnorm_fields, \
    .refuses = rmsnorm_refuses, .cases = rmsnorm_cases, .draws = rmsnorm_draws,           \
    .shape = rmsnorm_shape, .operands = rmsnorm_operands,                                 \
    .n_operands = sizeof rmsnorm_operands / sizeof *rmsnorm_operands

const vt_op rmsnorm_op = {
    RMSNORM_CARD,
    .name = "rmsnorm",
    .what = "scales each row by its root mean square and a weight",
    .cost = rmsnorm_cost,
    .reference = rmsnorm_reference,
    .make_args = rmsnorm_make_args,
    .impls = rmsnorm_impls,
};

const vt_op add_rmsnorm_op = {
    RMSNORM_CARD,
    .name = "add_rmsnorm",
    .what = "adds to the residual stream and normalises the sum",
    .cost = add_rmsnorm_cost,
    .reference = add_rmsnorm_reference,
    .make_args = add_rmsnorm_make_args,
    .impls = add_rmsnorm_impls,
    .variants = add_rmsnorm_variants,
};
