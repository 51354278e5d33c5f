/* Sampling: the card, its portable form and the reference.
 *
 * Selection is exact in this sense: the ids of a row are totally ordered (higher logit first, lower
 * id among equals); top-k keeps the first k ids of that order, top-p the shortest prefix whose
 * probability reaches p. Both hold for any vocabulary up to 2^18, because sums of weights are exact
 * (sample_kernel.h). Rejected: sorting the row (152k ids take milliseconds), and finding thresholds
 * by bisection on probabilities (wrong for ties and in the last bit). */
#include "ops/sample/sample.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/simd_portable.h"
#include "ops/sample/sample_kernel.h"

/* The logits are read, and one result is written per row. Work beyond one exponential per element
 * depends on the row's settings and is not counted. Nor is a mask, which adds one bit to the four
 * bytes of an id. */
static vt_cost sample_cost(const void *args, const vt_batch *batch)
{
    const sample_args *a = args;
    int64_t rows = vt_batch_rows(a->logits, batch), n = vt_batch_elems(a->logits, batch);
    return (vt_cost){
        .read = {.activations = vt_dtype_row_bytes(a->logits->dtype, n) +
                                rows * (int64_t)sizeof(vt_sample_row)},
        .write = {.activations = rows * (2 + 2 * VT_MAX_TOP_LOGPROBS) * 4},
        .flops = {.fp32 = 2 * n},
    };
}

/* ---- reference: sorts the row; everything is double ---- */

typedef struct ranked {
    double x, w;
    int32_t id;
} ranked;

static int by_rank(const void *pa, const void *pb)
{
    const ranked *a = pa, *b = pb;
    return a->x != b->x ? (a->x < b->x ? 1 : -1) : (a->id > b->id) - (a->id < b->id);
}

static int by_id(const void *pa, const void *pb)
{
    const ranked *a = pa, *b = pb;
    return (a->id > b->id) - (a->id < b->id);
}

static int32_t occurrences(const int32_t *ids, int32_t begin, int32_t end, int32_t id)
{
    int32_t n = 0;
    for (int32_t i = begin; i < end; i++)
        n += ids[i] == id;
    return n;
}

static void reference_adjust(float *l, int32_t n, const vt_sample_row *row, const int32_t *pool)
{
    for (int32_t id = 0; id < n && row->mask; id++)
        if (!(row->mask[id / 32] & 1u << id % 32))
            l[id] = -INFINITY;
    for (int32_t i = 0; i < row->n_bias; i++)
        l[row->bias[i].id] += row->bias[i].bias;
    int32_t pending = row->pending_slot >= 0 && pool ? pool[row->pending_slot] : -1;
    for (int32_t id = 0; id < n && row->context; id++) {
        int32_t out = occurrences(row->context, row->n_prompt, row->n_context, id) +
                      (id == pending);
        bool seen = out > 0 || occurrences(row->context, 0, row->n_prompt, id) > 0;
        if (seen && row->repetition_penalty != 1)
            l[id] = l[id] > 0 ? l[id] / row->repetition_penalty : l[id] * row->repetition_penalty;
        if (out > 0)
            l[id] -= row->presence_penalty + row->frequency_penalty * (float)out;
    }
}

/* e is [n], best first, and its x are logits. Returns the chosen id. */
static int32_t reference_choose(ranked *e, int32_t n, const vt_sample_row *row)
{
    if (!(row->temperature > 0))
        return e[0].id;
    double sum = 0, left;
    int32_t kept = row->top_k > 0 && row->top_k < n ? row->top_k : n, i;
    for (i = 0; i < n; i++)
        e[i].w = exp((e[i].x - e[0].x) / row->temperature);
    for (i = 0; i < kept; i++)
        sum += e[i].w;
    if (row->top_p < 1) {
        double mass = row->top_p * sum;
        for (sum = 0, i = 0; i < kept && (i == 0 || sum < mass); i++)
            sum += e[i].w;
        kept = i;
    }
    for (sum = 0, i = 0; i < kept && e[i].w >= (double)row->min_p; i++)
        sum += e[i].w;
    kept = i;
    qsort(e, (size_t)kept, sizeof *e, by_id);
    left = (double)sample_uniform(row->seed, (uint64_t)row->position) * sum;
    for (i = 0; i < kept - 1 && e[i].w <= left; i++)
        left -= e[i].w;
    return e[i].id;
}

static void reference_row(const sample_args *a, int64_t r, float *l, ranked *e)
{
    const vt_sample_row *row = &(*a->row)[r];
    int32_t n = (int32_t)a->logits->dim[1], *pool = a->token_pool ? *a->token_pool : NULL,
            token = -1;
    bool nan = false;
    double logprob = 0, sum = 0;
    for (int32_t i = 0; i < VT_MAX_TOP_LOGPROBS; i++)
        sample_put_top(a, r, i, -1, 0);
    memcpy(l, row_f32(a->logits, r), (size_t)n * sizeof *l);
    reference_adjust(l, n, row, pool);
    for (int32_t i = 0; i < n; i++) {
        e[i] = (ranked){.x = (double)l[i], .id = i};
        nan = nan || isnan(l[i]);
    }
    qsort(e, (size_t)n, sizeof *e, by_rank);
    if (!nan && isfinite(e[0].x)) {
        for (int32_t i = 0; i < n; i++)
            sum += exp(e[i].x - e[0].x);
        double top = e[0].x, log_sum = log(sum); /* kept apart: their sum could lose log_sum */
        for (int32_t i = 0; i < row->n_top && i < n && isfinite(e[i].x); i++)
            sample_put_top(a, r, i, e[i].id, (float)(e[i].x - top - log_sum));
        token = row->target >= 0 ? row->target : reference_choose(e, n, row);
        if (row->n_top >= 0 || row->target >= 0)
            logprob = (double)l[token] - top - log_sum;
    }
    ((int32_t *)a->token->data)[r] = token;
    ((float *)a->logprob->data)[r] = (float)logprob;
    if (pool && row->pool_slot >= 0)
        pool[row->pool_slot] = token < 0 ? 0 : token;
}

static void sample_reference(const void *args)
{
    const sample_args *a = args;
    size_t n = (size_t)a->logits->dim[1];
    float *l = malloc(n * sizeof *l);
    ranked *e = malloc(n * sizeof *e);
    for (int64_t r = 0; l && e && r < a->logits->dim[0]; r++)
        reference_row(a, r, l, e);
    free(l);
    free(e);
}

/* ---- cases ---- */

enum {
    KIND_GREEDY,
    KIND_PLAIN,
    KIND_TOP_K,
    KIND_TOP_P,
    KIND_MIN_P,
    KIND_ALL,
    KIND_PENALTIES,
    KIND_SCORE,
    KIND_HALF,
    KINDS,
    KIND_ANY /* settings drawn at random */
};

enum {
    MASK_NONE,
    MASK_ONE,     /* a single id, which may be in the last word */
    MASK_HALF,    /* ids drawn at random */
    MASK_BORDERS, /* the first and last ids of words and of the vocabulary */
    MASK_ALL,     /* all bits of all words, also those beyond the vocabulary */
    MASK_NOTHING,
    MASKS,
    MASK_EACH = MASKS /* row r has kind r / KINDS % MASKS */
};

enum { ROWS, VOCAB, KIND, SPREAD, EVERY, MASK, LOGITS };
enum { LOGITS_NORMAL, LOGITS_EXTREME, LOGITS_ZEROS };

static const char *const kind_words[] = {[KIND_GREEDY] = "greedy",
                                         [KIND_PLAIN] = "plain",
                                         [KIND_TOP_K] = "top_k",
                                         [KIND_TOP_P] = "top_p",
                                         [KIND_MIN_P] = "min_p",
                                         [KIND_ALL] = "all",
                                         [KIND_PENALTIES] = "penalties",
                                         [KIND_SCORE] = "score",
                                         [KIND_HALF] = "half",
                                         [KINDS] = "each",
                                         [KIND_ANY] = "any",
                                         NULL};
static const char *const mask_words[] = {[MASK_NONE] = "none", [MASK_ONE] = "one",
                                         [MASK_HALF] = "half", [MASK_BORDERS] = "borders",
                                         [MASK_ALL] = "all",   [MASK_NOTHING] = "nothing",
                                         [MASK_EACH] = "each", NULL};

static const char *const logits_words[] = {"normal", "extreme", "zeros", NULL};

static const vt_field sample_fields[] = {
    [ROWS] = {"rows", 1, false, 4096, .grows = VT_GROWS_SEQS},
    [VOCAB] = {"vocab", 151936, false, 1 << 20},
    [KIND] = {"kind", 0, false, KIND_ANY, kind_words},
    [SPREAD] = {"spread", 30, false, 10000, NULL, true},
    [EVERY] = {"every", 0, false, 1 << 20},
    [MASK] = {"mask", 0, false, MASK_EACH, mask_words},
    [LOGITS] = {"logits", 0, false, LOGITS_ZEROS, logits_words},
};

/* kind: the settings of every row; "each": row r has kind r % KINDS, and the last row has a NaN.
 * spread: ten times the deviation of the logits (0: all equal). logits: "extreme" has the largest
 * and smallest floats, "zeros" those of both signs. every n > 0: all but every n-th logit are
 * -infinity. */
static const char *const sample_cases[] = {
    "*rows=1 vocab=49152",
    "*rows=1 vocab=49152 kind=plain",
    "*rows=1 vocab=49152 kind=all",
    "*rows=32 vocab=151936 kind=top_p",
    "*rows=1 vocab=151936 kind=top_p spread=1",
    "rows=41 vocab=1000 kind=each spread=25",
    "rows=17 vocab=37 kind=each spread=20",
    "rows=9 vocab=1 kind=each spread=20",
    "rows=24 vocab=5003 kind=each spread=2",
    "rows=16 vocab=2048 kind=each spread=500",
    "rows=9 vocab=5001 kind=each spread=0",
    "rows=3 vocab=5002 kind=all every=700",
    "rows=120 vocab=3001 kind=any",
    "rows=120 vocab=3000 kind=any spread=1",
    "rows=60 vocab=1999 kind=any spread=0",
    "rows=60 vocab=1999 kind=any logits=zeros",
    "rows=60 vocab=997 kind=any logits=extreme",
    "rows=60 vocab=8195 kind=any logits=extreme mask=each",
    "rows=3 vocab=20000 kind=half spread=20",
    "rows=60 vocab=1000 kind=each spread=25 mask=each",
    "rows=60 vocab=33 kind=each spread=25 mask=each",
    "rows=60 vocab=64 kind=each spread=2 mask=each",
    "rows=60 vocab=1 kind=each spread=25 mask=each",
    "rows=60 vocab=3001 kind=any mask=each",
    "rows=11 vocab=16385 kind=each spread=25 mask=one",
    "rows=11 vocab=40003 kind=each spread=500 mask=borders",
    "*rows=32 vocab=151936 kind=all mask=half",
    NULL,
};

static const char *const sample_draws[] = {
    "rows=1..40 vocab=1|2|31|997|8192|8193|20004 kind=any|each spread=0|1|10|30|500 "
    "every=0|0|0|2|7|700 mask=none|one|half|borders|all|nothing|each",
    NULL,
};

static void any_settings(vt_sample_row *row, int32_t vocab, uint64_t *seed)
{
    static const float temperature[] = {0.8f, 1, 2, 0.3f, 0.05f, 1e-3f, 1e-7f, 30, 1e-42f},
                       top_p[] = {1, 1, 0.9f, 0.999f, 0.5f, 0.1f, 0, 0.9999999f},
                       min_p[] = {0, 0, 0, 0.02f, 1e-4f, 1e-9f, 0.9f, 1};
    const int32_t top_k[] = {0, 0, 0, 1, 7, 600, vocab / 2, vocab},
                  n_top[] = {-1, -1, -1, 0, 0, 1, 3, VT_MAX_TOP_LOGPROBS};
    row->temperature = temperature[case_random(seed) % 9];
    row->top_p = top_p[case_random(seed) % 8];
    row->min_p = min_p[case_random(seed) % 8];
    row->top_k = top_k[case_random(seed) % 8];
    row->n_top = n_top[case_random(seed) % 8];
}

static vt_sample_row make_row(vt_arena *arena, int64_t kind, int32_t vocab, uint64_t *seed)
{
    vt_sample_row row = {.temperature = 0.8f,
                         .top_p = 1,
                         .repetition_penalty = 1,
                         .n_top = -1,
                         .pool_slot = -1,
                         .target = -1,
                         .pending_slot = -1,
                         .seed = case_random(seed),
                         .position = (int32_t)(case_random(seed) % 4096)};
    bool all = kind == KIND_ALL || kind == KIND_PENALTIES;
    if (kind == KIND_GREEDY || kind == KIND_SCORE)
        row.temperature = 0;
    if (kind == KIND_TOP_K || all)
        row.top_k = 40;
    if (kind == KIND_HALF)
        row.top_k = vocab / 2 + 1, row.min_p = 1e-4f;
    if (kind == KIND_TOP_P || kind == KIND_HALF || all)
        row.top_p = 0.9f;
    if (kind == KIND_MIN_P || all)
        row.min_p = 0.05f;
    if (kind == KIND_SCORE || kind == KIND_GREEDY || kind == KIND_PENALTIES)
        row.n_top = kind == KIND_GREEDY ? 0 : kind == KIND_SCORE ? VT_MAX_TOP_LOGPROBS : 5;
    if (kind == KIND_SCORE)
        row.target = (int32_t)(case_random(seed) % (uint64_t)vocab);
    if (kind == KIND_ANY)
        any_settings(&row, vocab, seed);
    if (kind != KIND_PENALTIES)
        return row;
    int32_t *context = vt_arena_alloc(arena, 60, sizeof *context);
    vt_logit_bias *bias = vt_arena_alloc(arena, 3, sizeof *bias);
    for (int i = 0; context && i < 60; i++)
        context[i] = (int32_t)(case_random(seed) % (uint64_t)(vocab < 40 ? vocab : 40));
    for (int i = 0; bias && i < 3; i++)
        bias[i] = (vt_logit_bias){.id = (int32_t)(case_random(seed) % (uint64_t)vocab),
                                  .bias = 2.0f - (float)i};
    row.context = context;
    row.n_prompt = 25;
    row.n_context = context ? 60 : 0;
    row.repetition_penalty = 1.3f, row.presence_penalty = 0.4f, row.frequency_penalty = 0.2f;
    row.bias = bias;
    row.n_bias = bias ? 3 : 0;
    return row;
}

/* Fills each row with some of the extreme values, from two of them to all; with `zeros` with zeros
 * of both signs only. No two values are so close that only the lowest temperatures distinguish them
 * (sample.h). */
static void fill_extremes(vt_tensor *logits, bool zeros, uint64_t *seed)
{
    static const float some[] = {0,     -0.0f,        FLT_MAX,  -FLT_MAX, 1e30f,      -1e30f,
                                 1e10f, 1e10f + 1024, 1e-25f,   5,        5.0000005f, -5,
                                 88,    -104,         1e-5f,    4194304,  4194304.5f, -4e6f,
                                 1.5f,  1.4999999f,   -INFINITY};
    uint64_t most = zeros ? 2 : sizeof some / sizeof *some;
    for (int64_t r = 0; r < logits->dim[0]; r++) {
        uint64_t from = case_random(seed) % most, n = 2 + case_random(seed) % (most - 1);
        for (int64_t i = 0; i < logits->dim[1]; i++)
            tensor_set(logits, r, i, some[(from + case_random(seed) % n) % most]);
    }
}

/* Bits beyond the vocabulary are set, because no implementation may read them. */
static const uint32_t *make_mask(vt_arena *arena, int64_t kind, int32_t vocab, uint64_t *seed)
{
    int32_t words = (int32_t)vt_ceil_div(vocab, 32);
    uint32_t *mask = kind == MASK_NONE ? NULL : vt_arena_alloc(arena, (size_t)words, sizeof *mask);
    for (int32_t w = 0; mask && w < words; w++)
        mask[w] = kind == MASK_ALL       ? UINT32_MAX
                  : kind == MASK_BORDERS ? 0x80000001u
                  : kind == MASK_HALF    ? (uint32_t)case_random(seed)
                                         : 0;
    for (int32_t id = vocab; mask && id < words * 32; id++)
        mask[id / 32] |= 1u << id % 32;
    int32_t one = case_random(seed) % 2 ? vocab - 1
                                        : (int32_t)(case_random(seed) % (uint64_t)vocab);
    if (mask && (kind == MASK_ONE || kind == MASK_BORDERS))
        mask[one / 32] |= 1u << one % 32;
    return mask;
}

static void *sample_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                              vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t rows = c->p[ROWS], vocab = c->p[VOCAB];
    sample_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_sample_row *row = vt_arena_alloc(arena, (size_t)rows, sizeof *row),
                  **at = vt_arena_alloc(arena, 1, sizeof *at);
    vt_tensor *logits = case_tensor_2d(arena, VT_F32, rows, vocab);
    if (!a || !row || !at || !case_fill(arena, logits, 0, (float)c->p[SPREAD] * 0.1f, &seed))
        return NULL;
    for (int64_t r = 0; r < rows; r++)
        row[r] = make_row(arena, c->p[KIND] == KINDS ? r % KINDS : c->p[KIND], (int32_t)vocab,
                          &seed);
    if (c->p[LOGITS] != LOGITS_NORMAL)
        fill_extremes(logits, c->p[LOGITS] == LOGITS_ZEROS, &seed);
    for (int64_t i = 0; c->p[EVERY] > 0 && i < rows * vocab; i++)
        if (i % c->p[EVERY])
            tensor_set(logits, i / vocab, i % vocab, -INFINITY);
    for (int64_t r = 0; r < rows && c->p[MASK] != MASK_NONE; r++)
        row[r].mask = make_mask(arena, c->p[MASK] == MASK_EACH ? r / KINDS % MASKS : c->p[MASK],
                                (int32_t)vocab, &seed);
    if (c->p[KIND] == KINDS)
        tensor_set(logits, rows - 1, vocab / 2, NAN);
    *at = row;
    *a = (sample_args){.logits = logits,
                       .row = (const vt_sample_row *const *)at,
                       .token = case_tensor_1d(arena, VT_I32, rows),
                       .logprob = case_tensor_1d(arena, VT_F32, rows),
                       .top_id = case_tensor_2d(arena, VT_I32, rows, VT_MAX_TOP_LOGPROBS),
                       .top_logprob = case_tensor_2d(arena, VT_F32, rows, VT_MAX_TOP_LOGPROBS)};
    outputs[0] = a->token, outputs[1] = a->logprob, outputs[2] = a->top_id,
    outputs[3] = a->top_logprob;
    *n_outputs = 4;
    return a->token && a->logprob && a->top_id && a->top_logprob ? a : NULL;
}

static void sample_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const sample_args *a = args;
    (void)most_weights;
    p[ROWS] = vt_batch_rows(a->logits, batch);
    p[VOCAB] = a->logits->dim[1];
}

static const vt_impl *const sample_impls[] = {
    CPU_ROWS(sample),
    &sample_cuda_impl,
    NULL,
};

static const vt_operand sample_operands[] = {
    {"logits", offsetof(sample_args, logits), VT_OPERAND_F32, true, true, 0},
    {"token_pool", offsetof(sample_args, token_pool), VT_OPERAND_POOL, true, true, 0},
    {"token", offsetof(sample_args, token), VT_OPERAND_INT, false, true, 0},
    {"logprob", offsetof(sample_args, logprob), VT_OPERAND_F32, false, true, 0},
    {"top_id", offsetof(sample_args, top_id), VT_OPERAND_INT, false, true, 0},
    {"top_logprob", offsetof(sample_args, top_logprob), VT_OPERAND_F32, false, true, 0},
};

const vt_op sample_op = {
    CARD_OF(sample),
    .what = "chooses the next token of every logit row and reports log-probabilities",
    .tolerance = 3e-6,
    .tolerance_reason =
        "tokens are exact; a log-probability carries the fp32 rounding of its logit and of the sum",
    .is = VT_OP_HEAVY,
};
