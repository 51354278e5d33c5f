/* head_linear: the card, and one implementation that runs each head through the linear op.
 *
 * All workers compute one head after the other together, with a ticket of its own and a barrier
 * behind each: the next head's quantised activations take the same memory. */
#include "ops/head_linear/head_linear.h"

#include <string.h>

#include "base/err.h"
#include "ops/access.h"
#include "ops/cases.h"
#include "ops/cut.h"
#include "ops/head_linear/head_linear_impls.h"
#include "ops/linear/linear.h"

static vt_cost head_linear_cost(const void *args, const vt_batch *batch)
{
    const head_linear_args *a = args;
    int64_t products = 2 * vt_batch_rows(a->x, batch) * a->heads * a->w->rows * a->w->cols;
    /* tensor cores or AMX, as of the linear op */
    bool bf16 = a->x->dtype == VT_BF16 || a->w->dtype == VT_BF16,
         int8 = !bf16 && vt_dtype_quantised(a->w->dtype);
    return (vt_cost){.read = {.weights = a->heads * vt_tensor_bytes(a->w->part[0]),
                              .activations = vt_batch_bytes(a->x, batch)},
                     .write = {.activations = vt_batch_bytes(a->y, batch)},
                     .flops = {.bf16 = bf16 ? products : 0,
                               .int8 = int8 ? products : 0,
                               .fp32 = bf16 || int8 ? 0 : products}};
}

/* Columns [at, at + cols) of a tensor. */
static vt_tensor columns(const vt_tensor *t, int64_t at, int64_t cols)
{
    vt_tensor v = *t;
    v.dim[1] = cols;
    v.data = t->data ? (float *)t->data + at : NULL;
    return v;
}

/* A head's operands; the product's arguments point at them. */
typedef struct head_call {
    vt_tensor x, y;
    linear_args linear;
} head_call;

static void head_of(const head_linear_args *a, int32_t h, head_call *c)
{
    const vt_weight *w = &a->w[h];
    c->x = columns(a->x, h * (w->cols + a->rest), w->cols);
    c->y = columns(a->y, h * (a->rest + w->rows) + a->rest, w->rows);
    c->linear = (linear_args){.x = &c->x, .w = w, .y = &c->y, .scale = 1};
}

/* Copies what lies behind each head's input of token t. */
static void copy_rest(const head_linear_args *a, int64_t t)
{
    int64_t in = a->w->cols, out = a->w->rows, rest = a->rest;
    for (int32_t h = 0; rest > 0 && h < a->heads; h++)
        memcpy(row_f32(a->y, t) + h * (rest + out), row_f32(a->x, t) + h * (in + rest) + in,
               (size_t)rest * sizeof(float));
}

static void head_linear_reference(const void *args)
{
    const head_linear_args *a = args;
    head_call c;
    for (int64_t t = 0; t < a->x->dim[0]; t++)
        copy_rest(a, t);
    for (int32_t h = 0; h < a->heads; h++) {
        head_of(a, h, &c);
        linear_op.reference(&c.linear);
    }
}

/* ---- implementation ---- */

static size_t tickets_bytes(const head_linear_args *a)
{
    return vt_round_up((size_t)a->heads * sizeof(atomic_int), VT_CACHE_LINE);
}

static size_t head_linear_workspace(const void *args, const vt_target *t)
{
    const head_linear_args *a = args;
    head_call c;
    head_of(a, 0, &c);
    c.x.dim[0] = c.y.dim[0] = t->limits.max_tokens;
    const vt_impl *impl = linear_packed_row(&c.linear, t);
    return tickets_bytes(a) + (impl->workspace ? impl->workspace(&c.linear, t) : 0);
}

static vt_status head_linear_run(const void *args, const vt_lane *lane)
{
    const head_linear_args *a = args;
    atomic_int *ticket = lane->workspace;
    vt_lane inner = *lane;
    inner.workspace = (char *)lane->workspace + tickets_bytes(a);
    inner.workspace_bytes = lane->workspace_bytes - tickets_bytes(a);
    int64_t begin, end;
    if (lane->worker == 0)
        for (int32_t h = 0; h < a->heads; h++)
            atomic_store_explicit(&ticket[h], 0, memory_order_relaxed);
    vt_lane_share(lane, a->x->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        copy_rest(a, t);
    for (int32_t h = 0; h < a->heads; h++) {
        head_call c;
        vt_team_barrier(lane->team, lane->worker);
        head_of(a, h, &c);
        inner.ticket = &ticket[h];
        TRY(linear_packed_row(&c.linear, lane->target)->run(&c.linear, &inner));
    }
    return VT_OK;
}

static bool head_linear_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const head_linear_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

/* ---- cases ---- */

enum { TOKENS, HEADS, IN, OUT, REST, TYPE };

static const vt_field head_linear_fields[] = {
    [TOKENS] = {"tokens", 1, false, 1 << 14, .grows = VT_GROWS_TOKENS},
    [HEADS] = {"heads", 16, false, 512},
    [IN] = {"in", 128, false, 4096},
    [OUT] = {"out", 512, false, 4096},
    [REST] = {"rest", 0, false, 1024},
    [TYPE] = {"type", VT_BF16, true},
};

static const char *head_linear_refuses(const vt_case *c)
{
    const int64_t *p = c->p;
    vt_dtype type = (vt_dtype)p[TYPE];
    if (!vt_dtype_weight(type) || type == VT_FP8_E4M3 || p[IN] % vt_dtype_get(type)->block)
        return "type: f32, f16, bf16 or a quantised one; in is a multiple of its block of columns";
    return p[HEADS] * p[IN] * p[OUT] > (int64_t)1 << 28
               ? "heads: heads times in times out is at most 2^28"
               : NULL;
}

static const char *const head_linear_cases[] = {
    "*tokens=1 heads=16 in=128 out=512 rest=64",
    "*tokens=1 heads=16 in=512 out=128",
    "*tokens=128 heads=16 in=128 out=512 rest=64",
    "tokens=5 heads=3 in=20 out=33 rest=10 type=f32",
    "tokens=9 heads=5 in=33 out=12 type=f16",
    "tokens=17 heads=2 in=24 out=40 rest=6",
    "tokens=3 heads=4 in=64 out=32 rest=8 type=q8_0",
    NULL,
};

static const char *const head_linear_draws[] = {
    "tokens=~60 heads=1..6 in=16|20|33 out=12|32|47 rest=0|2|8 type=f32|f16|bf16",
    "tokens=~60 heads=1..6 in=64|32 out=12|32|47 rest=0|2|8 type=q8_0|q4_0",
    NULL,
};

static void *head_linear_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    head_linear_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_weight *w = vt_arena_alloc(arena, (size_t)p[HEADS], sizeof *w);
    vt_tensor *x = case_fill(
        arena, case_tensor_2d(arena, VT_F32, p[TOKENS], p[HEADS] * (p[IN] + p[REST])), 0, 1, &seed);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, p[TOKENS], p[HEADS] * (p[REST] + p[OUT]));
    if (!a || !w || !x || !y)
        return NULL;
    for (int64_t h = 0; h < p[HEADS]; h++) {
        vt_weight *one = case_weight(arena, (vt_dtype)p[TYPE], 1, &p[OUT], p[IN], false, &seed);
        if (!one)
            return NULL;
        w[h] = *one;
        w[h].n_experts = (int32_t)p[HEADS];
    }
    *a = (head_linear_args){
        .x = x, .w = w, .y = y, .heads = (int32_t)p[HEADS], .rest = (int32_t)p[REST]};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

/* As many heads as the limit on weights allows. */
static void head_linear_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                              int64_t *p)
{
    const head_linear_args *a = args;
    int64_t most = most_weights / (a->w->rows * a->w->cols);
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[HEADS] = a->heads < most ? a->heads : most > 1 ? most : 1;
    p[IN] = a->w->cols;
    p[OUT] = a->w->rows;
    p[REST] = a->rest;
    p[TYPE] = a->w->dtype;
}

/* The cut is that of one head's product; the items are those of all heads. */
static void head_linear_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const head_linear_args *a = args;
    head_call c;
    head_of(a, 0, &c);
    c.x.dim[0] = c.y.dim[0] = vt_size_rows(a->x, size);
    const vt_impl *impl = linear_packed_row(&c.linear, t);
    if (impl->describe)
        impl->describe(&c.linear, t, NULL, out);
    vt_cut_shape(out, "%d heads, [%lld x %lld] x [%lld x %lld]", a->heads, (long long)c.x.dim[0],
                 (long long)a->w->cols, (long long)a->w->cols, (long long)a->w->rows);
    vt_cut_cpu(out, t, a->heads * out->items, out->vector_bytes);
}

static const vt_impl head_linear_cpu = {.name = "cpu",
                                        .device = VT_DEVICE_CPU,
                                        .supports = head_linear_supports,
                                        .run = head_linear_run,
                                        .describe = head_linear_describe,
                                        .workspace = head_linear_workspace};

static const vt_impl *const head_linear_impls[] = {&head_linear_cpu, &head_linear_cuda, NULL};

static const vt_operand head_linear_operands[] = {
    {"x", offsetof(head_linear_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"w", offsetof(head_linear_args, w), VT_OPERAND_WEIGHTS, true, false,
     offsetof(head_linear_args, heads)},
    {"y", offsetof(head_linear_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op head_linear_op = {
    CARD_OF(head_linear),
    .what = "multiplies each head with a matrix of its own",
    .tolerance = 1e-4,
    .tolerance_reason = "that of linear, whose rows compute it",
    .quantised_tolerance = 0.02, /* activations become int8: half a percent of a row */
    .refuses = head_linear_refuses,
    .is = VT_OP_HEAVY,
    .packs = VT_PACKS_HEADS,
    .row_of = linear_row_for,
};
