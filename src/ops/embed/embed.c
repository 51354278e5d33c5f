/* The embedding lookup: one row of the table per token, dequantised if the table is quantised.
 *
 * Memory bounds it, not arithmetic: 576 values of Q8_0 are 612 bytes per token. Tokens are divided
 * among the workers. vt_dequant_row is fast enough for most types, but without vector instructions
 * F16 and FP8 are converted one by one. One thread of an AMD EPYC with AVX-512, rows of 4096, the
 * fastest of five runs (vitrine bench kernels embed --threads 1), us:
 *
 *                 portable    avx2   avx512
 *   512 x F16         4271     175      188
 *   512 x FP8         4026     271      169
 *   512 x Q8_0         381     222      229
 *    64 x BF16        20.2    17.0     17.1
 *   512 x Q4_K         422     442      418    vt_dequant_row in all three */
#include "ops/embed/embed.h"

#include <stdlib.h>
#include <string.h>

#include "base/quant.h"
#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/embed/embed_impls.h"

static vt_cost embed_cost(const void *args, const vt_batch *batch)
{
    const embed_args *a = args;
    int64_t tokens = vt_batch_rows(a->y, batch);
    return (vt_cost){
        .read = {.weights = tokens * vt_dtype_row_bytes(a->table->dtype, a->table->dim[1]),
                 .activations = tokens * (int64_t)sizeof **a->tokens},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        .flops = {.fp32 = a->scale == 1 ? 0 : vt_batch_elems(a->y, batch)},
    };
}

/* Returns the row of the table for token t; -1: it is in another rank's part. */
static int64_t row_at(const embed_args *a, int64_t t)
{
    int32_t id = (*a->tokens)[t];
    int64_t row = (id >= 0 ? id : (*a->token_pool)[-1 - id]) - a->first;
    return a->part && row >= a->table->dim[0] ? -1 : row;
}

static void embed_rows(const embed_args *a, int64_t begin, int64_t end)
{
    int64_t hidden = a->table->dim[1];
    int64_t bytes = vt_dtype_row_bytes(a->table->dtype, a->table->row_stride);
    for (int64_t t = begin; t < end; t++) {
        float *y = (float *)a->y->data + t * a->y->row_stride;
        int64_t row = row_at(a, t);
        if (row < 0)
            memset(y, 0, (size_t)hidden * sizeof *y);
        else
            vt_dequant_row(a->table->dtype, (const char *)a->table->data + row * bytes, y, hidden);
        if (a->scale != 1)
            for (int64_t i = 0; i < hidden; i++)
                y[i] *= a->scale;
    }
}

/* Scaled in double, rounded once. */
static void embed_reference(const void *args)
{
    const embed_args *a = args;
    int64_t hidden = a->table->dim[1];
    int64_t bytes = vt_dtype_row_bytes(a->table->dtype, a->table->row_stride);
    float *row = vt_calloc((size_t)hidden, sizeof *row);
    for (int64_t t = 0; row && t < a->y->dim[0]; t++) {
        int64_t at = row_at(a, t);
        if (at >= 0)
            vt_dequant_row(a->table->dtype, (const char *)a->table->data + at * bytes, row, hidden);
        for (int64_t i = 0; i < hidden; i++)
            ((float *)a->y->data)[t * a->y->row_stride + i] = at < 0 ? 0
                                                                     : (float)((double)a->scale *
                                                                               (double)row[i]);
    }
    free(row);
}

static vt_status embed_run(const void *args, const vt_lane *lane)
{
    const embed_args *a = args;
    int64_t begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    embed_rows(a, begin, end);
    return VT_OK;
}

static bool embed_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const embed_args *a = args;
    return !a->y || a->y->dtype == VT_F32;
}

static void embed_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const embed_args *a = args;
    int64_t tokens = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld from %lld", (long long)tokens, (long long)a->table->dim[1],
                 (long long)a->table->dim[0]);
    vt_cut_cpu(out, t, tokens, 0);
}

const vt_impl embed_portable = {
    .name = "portable",
    .device = VT_DEVICE_CPU,
    .supports = embed_supports,
    .run = embed_run,
    .describe = embed_describe,
};
static const vt_impl *const embed_impls[] = {
    CPU_ROWS(embed),
    &embed_cuda_impl,
    NULL,
};

static const vt_impl *const embed_variants[] = {
    &embed_rows_1,
    &embed_rows_2,
    &embed_rows_4,
    &embed_rows_adaptive,
    &embed_rows_full,
    &embed_rows_32_bytes,
    &embed_rows_keep_y,
    &embed_rows_keep_table,
    &embed_rows_staged,
    &embed_rows_shuffle,
    NULL,
};

/* ---- cases ---- */

enum { TOKENS, TYPE, VOCAB, HIDDEN, SCALED, POOLED, PART };

static const vt_field embed_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [TYPE] = {"type", VT_BF16, true},
    [VOCAB] = {"vocab", 32000, false, 1 << 20},
    [HIDDEN] = {"hidden", 4096, false, 1 << 16},
    [SCALED] = {"scaled", 0, false, 1},
    [POOLED] = {"pooled", 0, false, 1},
    [PART] = {"part", 0, false, 1, .of_rank = true},
};

static const char *embed_refuses(const vt_case *c)
{
    bool known = vt_dtype_weight((vt_dtype)c->p[TYPE]);
    return !known || c->p[HIDDEN] % vt_dtype_get((vt_dtype)c->p[TYPE])->block
               ? "type: hidden is a multiple of its block of columns"
               : NULL;
}

/* scaled: by 7.5; pooled: every second token is given by its slot of the token pool; part: the
 * table is the `vocab` rows in the middle of a vocabulary twice as large */

static void *embed_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                             vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    uint64_t rng = seed;
    embed_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *table = case_tensor_2d(arena, (vt_dtype)p[TYPE], p[VOCAB], p[HIDDEN]);
    table = case_fill(arena, table, 0, 1, &rng);
    int32_t **list = vt_arena_alloc(arena, 2, sizeof *list);
    int32_t *tokens = vt_arena_alloc(arena, 2 * (size_t)p[TOKENS], sizeof *tokens);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, p[TOKENS], p[HIDDEN]);
    if (!a || !table || !list || !tokens || !y)
        return NULL;
    for (int64_t t = 0; t < p[TOKENS]; t++)
        tokens[t] = (int32_t)(case_random(&rng) % (uint64_t)(p[PART] ? 2 * p[VOCAB] : p[VOCAB]));
    list[0] = tokens;
    list[1] = tokens + p[TOKENS];
    for (int64_t t = 0; p[POOLED] && t < p[TOKENS]; t += 2) { /* every second one by its slot */
        list[1][t] = tokens[t];
        tokens[t] = (int32_t)(-1 - t);
    }
    *a = (embed_args){.table = table,
                      .tokens = (const int32_t *const *)&list[0],
                      .token_pool = &list[1],
                      .y = y,
                      .scale = p[SCALED] ? 7.5f : 1,
                      .part = p[PART],
                      .first = p[PART] ? (int32_t)(p[VOCAB] / 2) : 0};
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

static void embed_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const embed_args *a = args;
    int64_t hidden = a->table->dim[1], most = most_weights / hidden;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[TYPE] = a->table->dtype;
    p[VOCAB] = a->table->dim[0] < most ? a->table->dim[0] : most;
    p[HIDDEN] = hidden;
    p[SCALED] = a->scale != 1;
    p[PART] = a->part;
}

static const char *const embed_cases[] = {
    "tokens=3 type=f32|bf16|fp8 vocab=10 hidden=67",
    "tokens=3 type=f16 vocab=10 hidden=67 scaled=1",
    "tokens=17 type=q8_0 vocab=33 hidden=96",
    "tokens=7 type=bf16 vocab=33 hidden=64 pooled=1",
    "tokens=29 type=bf16|q8_0 vocab=33 hidden=64 pooled=1 part=1",
    /* rows of 136 vectors: warps end inside their last 32 */
    "tokens=65 type=bf16 vocab=33 hidden=1088",
    "tokens=9 type=bf16 vocab=12 hidden=4096",
    /* a warp a row on a GPU of few SMs; 257 vectors */
    "tokens=270 type=bf16 vocab=33 hidden=2056 pooled=1 part=1 scaled=1",
    "tokens=5 type=q4_0 vocab=33 hidden=96 scaled=1",
    "tokens=5 type=q4_1|q5_0|q5_1|iq4_nl|mxfp4 vocab=33 hidden=96",
    "tokens=5 type=q4_k|q5_k|q6_k|q3_k|q2_k|iq4_xs vocab=9 hidden=512",
    "*tokens=1|512 type=q8_0 vocab=4096 hidden=576",
    NULL,
};

static const char *const embed_draws[] = {
    "tokens=~200 type=bf16|fp8|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k vocab=~300 hidden=256|512 "
    "scaled=0|1 pooled=0|0|1 part=0|0|1",
    NULL,
};

static const vt_operand embed_operands[] = {
    {"table", offsetof(embed_args, table), VT_OPERAND_TABLE, true, false, 0},
    {"tokens", offsetof(embed_args, tokens), VT_OPERAND_INDEX, true, false, 0},
    {"token_pool", offsetof(embed_args, token_pool), VT_OPERAND_POOL, true, false, 0},
    {"y", offsetof(embed_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op embed_op = {
    .what = "one row of the embedding table a token, dequantised",
    .tolerance = 1e-6,
    .tolerance_reason = "the values are exact; a scale rounds once",
    .refuses = embed_refuses,
    .variants = embed_variants,
    .is = VT_OP_HEAVY,
    .packs = VT_PACKS_TABLE,
    CARD_OF(embed),
};
