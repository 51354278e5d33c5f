/* Rotary position embedding: the card, its portable form, and the reference. The cos/sin table with
 * the models' context-extension schemes is in model/rope_table.h. */
#include "ops/rope/rope.h"

#include <math.h>

#include "model/rope_table.h"
#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/rope/rope_impls.h"
#include "ops/simd_portable.h"
#include "ops/rope/rope_kernel.h"

/* q and k are read and written; the table's rows of this step's positions and the norms' weights
 * are read. */
static vt_cost rope_cost(const void *args, const vt_batch *batch)
{
    const rope_args *a = args;
    int64_t tokens = (batch ? batch : a->batch)->n_tokens,
            qk = tokens * (a->q->dim[1] + a->k->dim[1]);
    int64_t bytes = vt_dtype_row_bytes(a->q->dtype, qk);
    vt_cost c = {
        /* per token: a row of each table, and a position */
        .read = {.activations = bytes + tokens * ((a->q_cos_sin ? 2 : 1) * a->dims + 1) * 4},
        .write = {.activations = bytes},
        .flops = {.fp32 = 3 * qk / a->head_dim * a->dims}, /* 4 multiplies and 2 adds per pair */
    };
    if (a->q_norm) {
        c.read.weights += vt_batch_bytes(a->q_norm, batch);
        c.flops.fp32 += 4 * tokens * a->q->dim[1];
    }
    if (a->k_norm) {
        c.read.weights += vt_batch_bytes(a->k_norm, batch);
        c.flops.fp32 += 4 * tokens * a->k->dim[1];
    }
    return c;
}

static void reference_norm(const rope_args *a, vt_tensor *x, const vt_tensor *norm, int64_t t,
                           int64_t at)
{
    int32_t d = a->head_dim;
    double sum = 0;
    for (int32_t i = 0; i < d; i++)
        sum += (double)tensor_get(x, t, at + i) * tensor_get(x, t, at + i);
    double inv = 1 / sqrt(sum / d + a->eps);
    for (int32_t i = 0; i < d; i++) {
        double w = (double)tensor_get(norm, 0, i) + (a->plus_one ? 1 : 0);
        tensor_set(x, t, at + i, (float)(tensor_get(x, t, at + i) * inv * w));
    }
}

static void reference_head(const rope_args *a, vt_tensor *x, const vt_tensor *norm, int64_t t,
                           int64_t at)
{
    int32_t half = a->dims / 2;
    const vt_tensor *table = x == a->q && a->q_cos_sin ? a->q_cos_sin : a->cos_sin;
    if (norm && !a->norm_after)
        reference_norm(a, x, norm, t, at);
    int32_t pos = a->batch->position[t];
    for (int32_t i = 0; i < half; i++) {
        int64_t ia = at + (a->interleaved ? 2 * i : i),
                ib = at + (a->interleaved ? 2 * i + 1 : i + half);
        double c = tensor_get(table, pos, i), s = tensor_get(table, pos, half + i);
        double va = tensor_get(x, t, ia), vb = tensor_get(x, t, ib);
        tensor_set(x, t, ia, (float)(va * c - vb * s));
        tensor_set(x, t, ib, (float)(va * s + vb * c));
    }
    if (norm && a->norm_after)
        reference_norm(a, x, norm, t, at);
}

static void rope_reference(const void *args)
{
    const rope_args *a = args;
    for (int64_t t = 0; t < a->batch->n_tokens; t++) {
        for (int64_t at = 0; at < a->q->dim[1]; at += a->head_dim)
            reference_head(a, a->q, a->q_norm, t, at);
        for (int64_t at = 0; at < a->k->dim[1]; at += a->head_dim)
            reference_head(a, a->k, a->k_norm, t, at);
    }
}

enum { TOKENS, HEADS, KV_HEADS, HEAD_DIM, DIMS, INTERLEAVED, NORM, TYPE, PLUS_ONE, OWN };

static const vt_field rope_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [HEADS] = {"heads", 32, false, 512},
    [KV_HEADS] = {"kv_heads", 8, false, 512, .zero = true},
    [HEAD_DIM] = {"head_dim", 128, false, 1024},
    [DIMS] = {"dims", 0, false, 1024},
    [INTERLEAVED] = {"interleaved", 0, false, 1},
    [NORM] = {"norm", 0, false, 2}, /* 1: before the rotation, 2: after it */
    [TYPE] = {"type", VT_F32, true},
    [PLUS_ONE] = {"plus_one", 0, false, 1},
    [OWN] = {"q_table", 0, false, 1},
};

const char *rope_dims_refuse(int64_t head_dim, int64_t dims)
{
    dims = dims ? dims : head_dim;
    return dims > head_dim || dims % 2 ? "dims: an even number, head_dim at most" : NULL;
}

static const char *rope_refuses(const vt_case *c)
{
    const char *why = rope_dims_refuse(c->p[HEAD_DIM], c->p[DIMS]);
    return !why && c->p[TYPE] > VT_BF16 ? "type: the norms' weights are f32, f16 or bf16" : why;
}

/* dims 0 means head_dim; type is that of the norms' weights */
static const char *const rope_cases[] = {
    "*tokens=1 heads=9 kv_heads=3 head_dim=64 dims=64",
    "*tokens=512 heads=9 kv_heads=3 head_dim=64 dims=64",
    "*tokens=512 heads=16 kv_heads=8 head_dim=128 dims=128 norm=1",
    "*tokens=64 heads=4 kv_heads=1 head_dim=256 dims=256 norm=1 type=bf16 plus_one=1",
    "tokens=7 heads=3 kv_heads=1 head_dim=20 dims=20",
    "tokens=9 heads=4 kv_heads=0 head_dim=64",
    "tokens=6 heads=2 kv_heads=0 head_dim=32 norm=1",
    "tokens=7 heads=4 kv_heads=2 head_dim=64 norm=2",
    "tokens=6 heads=3 kv_heads=1 head_dim=20 norm=2 plus_one=1 q_table=1",
    "tokens=5 heads=2 kv_heads=2 head_dim=24 dims=16 interleaved=1 norm=2 type=bf16",
    "tokens=5 heads=4 kv_heads=2 head_dim=40 dims=20",
    "tokens=5 heads=2 kv_heads=2 head_dim=24 dims=16 interleaved=1 norm=1 type=f16",
    "tokens=33 heads=4 kv_heads=2 head_dim=64 interleaved=1",
    "tokens=5 heads=3 kv_heads=1 head_dim=24 dims=16 interleaved=1",
    "tokens=34 heads=4 kv_heads=2 head_dim=64 q_table=1",
    "tokens=5 heads=3 kv_heads=1 head_dim=24 dims=16 interleaved=1 norm=1 q_table=1",
    NULL,
};

static const char *const rope_draws[] = {
    "tokens=~90 heads=1..9 kv_heads=1..3 head_dim=64|128|256|96|13 dims=0|0|8|40 "
    "interleaved=0|0|1 norm=0|1|2 plus_one=0|1 q_table=0|0|1",
    NULL,
};

bool rope_case_args(const rope_case *c, vt_arena *arena, uint64_t *seed, rope_args *out)
{
    int64_t d = c->head_dim, dims = c->dims ? c->dims : d, n_q = c->heads * d;
    vt_tensor *table = case_tensor_2d(arena, VT_F32, c->context, dims);
    vt_tensor *own = case_tensor_2d(arena, VT_F32, c->context, dims);
    if (!c->batch || !c->qkv || !table || !own)
        return false;
    vt_rope_params rope = {.base = 10000, .dims = (int32_t)dims};
    vt_rope_table(&rope, 0, c->context, table->data);
    rope.temper = 0.5;
    rope.original_context = 9;
    vt_rope_table(&rope, 0, c->context, own->data);
    *out = (rope_args){.batch = c->batch,
                       .q = case_slice(arena, c->qkv, 0, n_q),
                       .k = case_slice(arena, c->qkv, n_q, c->kv_heads * d),
                       .head_dim = (int32_t)d,
                       .dims = (int32_t)dims,
                       .interleaved = c->interleaved,
                       .cos_sin = table,
                       .q_cos_sin = c->own ? own : NULL,
                       .eps = 1e-6f,
                       .norm_after = c->norm == 2};
    if (c->norm) {
        out->q_norm = case_fill(arena, case_tensor_1d(arena, c->norm_type, d), 1, 0.3f, seed);
        out->k_norm = case_fill(arena, case_tensor_1d(arena, c->norm_type, d), 1, 0.3f, seed);
    }
    return out->q && out->k && (!c->norm || (out->q_norm && out->k_norm));
}

static void *rope_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                            vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    int64_t tokens = p[TOKENS], columns = (p[HEADS] + 2 * p[KV_HEADS]) * p[HEAD_DIM];
    int32_t context = 2 * (int32_t)tokens + 40;
    rope_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = case_batch(arena, 16, 1, &(case_seq){(int32_t)tokens, context - 3}, false, 100,
                             &seed);
    rope_case sizes = {
        .batch = b,
        .qkv = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, columns), 0, 1, &seed),
        .heads = p[HEADS],
        .kv_heads = p[KV_HEADS],
        .head_dim = p[HEAD_DIM],
        .dims = p[DIMS],
        .context = context,
        .interleaved = p[INTERLEAVED] != 0,
        .norm = (int)p[NORM],
        .own = p[OWN] != 0,
        .norm_type = (vt_dtype)p[TYPE]};
    if (!a || !rope_case_args(&sizes, arena, &seed, a))
        return NULL;
    a->plus_one = p[PLUS_ONE] != 0;
    outputs[0] = a->q;
    outputs[1] = a->k;
    *n_outputs = p[KV_HEADS] > 0 ? 2 : 1;
    return a;
}

static void rope_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const rope_args *a = args;
    (void)most_weights;
    p[TOKENS] = vt_batch_rows(a->q, batch);
    p[HEADS] = a->q->dim[1] / a->head_dim;
    p[KV_HEADS] = a->k->dim[1] / a->head_dim;
    p[HEAD_DIM] = a->head_dim;
    p[DIMS] = a->dims == a->head_dim ? 0 : a->dims;
    p[INTERLEAVED] = a->interleaved;
    p[NORM] = a->q_norm ? 1 + a->norm_after : 0;
    p[OWN] = a->q_cos_sin != NULL;
    if (a->q_norm)
        p[TYPE] = a->q_norm->dtype;
}

static const vt_impl *const rope_impls[] = {
    CPU_ROWS(rope),
    &rope_cuda_impl,
    &rope_cuda_any_impl,
    NULL,
};

static const vt_impl *const rope_variants[] = {&rope_cuda_pairs, NULL};

static const vt_operand rope_operands[] = {
    {"batch", offsetof(rope_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"q", offsetof(rope_args, q), VT_OPERAND_ACTIVATION, true, true, 0},
    {"k", offsetof(rope_args, k), VT_OPERAND_ACTIVATION, true, true, 0},
    {"cos_sin", offsetof(rope_args, cos_sin), VT_OPERAND_F32, true, false, 0},
    {"q_cos_sin", offsetof(rope_args, q_cos_sin), VT_OPERAND_F32, true, false, 0},
    {"q_norm", offsetof(rope_args, q_norm), VT_OPERAND_F32, true, false, 0},
    {"k_norm", offsetof(rope_args, k_norm), VT_OPERAND_F32, true, false, 0},
};

const vt_op rope_op = {
    CARD_OF(rope),
    .what = "rotates q and k by their positions, after an optional norm of each head",
    .tolerance = 2e-6,
    .tolerance_reason = "three fp32 roundings against one; with norms an fp32 sum against double",
    .refuses = rope_refuses,
    .variants = rope_variants,
};
