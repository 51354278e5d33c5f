/* Sums of segments: the card, its portable form and the reference. Memory bounds it: one addition
 * for 2 or 4 bytes. It runs once a step of a model that pools the mean of its hidden states. */
#include "ops/segment_sum/segment_sum.h"

#include "ops/cases.h"
#include "ops/segment_sum/segment_sum_impls.h"
#include "ops/simd_portable.h"
#include "ops/segment_sum/segment_sum_kernel.h"

/* Returns the segments of the batch, or of the call; one a sequence where only sizes are known. */
static int64_t segments_of(const segment_sum_args *a, const vt_batch *batch)
{
    const vt_batch *b = batch ? batch : a->batch;
    int64_t rows = vt_batch_rows(a->x, batch);
    return b->row_token ? vt_segment_count(b) : rows < b->n_seqs ? rows : b->n_seqs;
}

static vt_cost segment_sum_cost(const void *args, const vt_batch *batch)
{
    const segment_sum_args *a = args;
    int64_t rows = vt_batch_rows(a->x, batch), n = a->x->dim[1], seqs = segments_of(a, batch);
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch) + rows * (int64_t)sizeof(int32_t)},
        .write = {.activations = 2 * seqs * n * (int64_t)sizeof(float)},
        .flops = {.fp32 = rows * n},
    };
}

static void segment_sum_reference(const void *args)
{
    const segment_sum_args *a = args;
    const vt_batch *b = a->batch;
    int64_t n = a->x->dim[1], s = -1;
    for (int64_t i = 0; i < n; i++, s = -1) {
        double total = 0;
        for (int32_t r = 0; r < b->n_rows; r++) {
            int32_t seq = b->seq_of[b->row_token[r]];
            bool begins = r == 0 || seq != b->seq_of[b->row_token[r - 1]];
            s += begins;
            total = (begins ? 0 : total) + (double)tensor_get(a->x, r, i);
            tensor_set(a->sum, s, i, (float)total);
            tensor_set(a->rest, s, i, (float)(total - (double)(float)total));
        }
    }
}

enum { ROWS, HIDDEN, SEQS, SKIP };

static const vt_field segment_sum_fields[] = {
    [ROWS] = {"rows", 1, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 384},
    [SEQS] = {"seqs", 1, false, 1 << 16, .grows = VT_GROWS_SEQS},
    [SKIP] = {"skip", 0, false, 1},
};

static const char *segment_sum_refuses(const vt_case *c)
{
    return c->p[SEQS] > c->p[ROWS] ? "seqs: at most as many as rows" : NULL;
}

/* skip: every second sequence has tokens in the step, and no row. */
static const char *const segment_sum_cases[] = {
    "*rows=32 seqs=1 hidden=384",
    "*rows=4096 seqs=128 hidden=384",
    "rows=1 hidden=67",
    "rows=300 seqs=1 hidden=1024",
    "rows=57 seqs=9 hidden=65 skip=1",
    "rows=16 seqs=16 hidden=768",
    NULL,
};

static const char *const segment_sum_draws[] = {
    "rows=~700 seqs=1|2|~40 hidden=1|24|63|384|768|1024 skip=0|0|1",
    NULL,
};

/* A batch of `rows` rows; sequences that have none bring one token each. */
static vt_batch *make_batch(const int64_t *p, vt_arena *arena, uint64_t *seed)
{
    int32_t each = p[SKIP] ? 2 : 1, n = (int32_t)p[SEQS] * each, row = 0;
    case_seq *seq = vt_arena_alloc(arena, (size_t)n, sizeof *seq);
    int32_t *row_token = vt_arena_alloc(arena, (size_t)p[ROWS], sizeof *row_token);
    for (int32_t s = 0; seq && s < n; s++) {
        int32_t nth = s / each,
                len = (int32_t)(p[ROWS] / p[SEQS]) + (nth < (int32_t)(p[ROWS] % p[SEQS]));
        len = s % each ? 1 : len;
        seq[s] = (case_seq){len, len};
    }
    vt_batch *b = seq ? case_batch(arena, 16, n, seq, false, 100, seed) : NULL;
    if (!b || !row_token)
        return NULL;
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (b->seq_of[t] % each == 0)
            row_token[row++] = t;
    b->row_token = row_token;
    b->n_rows = row;
    return b;
}

static void *segment_sum_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    segment_sum_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = make_batch(p, arena, &seed);
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, p[ROWS], p[HIDDEN]), 0.1f, 1,
                             &seed),
              *sum = case_tensor_2d(arena, VT_F32, p[ROWS], p[HIDDEN]),
              *rest = case_tensor_2d(arena, VT_F32, p[ROWS], p[HIDDEN]);
    if (!a || !b || !x || !sum || !rest)
        return NULL;
    *a = (segment_sum_args){.batch = b, .x = x, .sum = sum, .rest = rest};
    outputs[0] = sum;
    outputs[1] = rest;
    *n_outputs = 2;
    return a;
}

static void segment_sum_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                              int64_t *p)
{
    const segment_sum_args *a = args;
    (void)most_weights;
    p[ROWS] = vt_batch_rows(a->x, batch);
    p[ROWS] = p[ROWS] < 1 ? 1 : p[ROWS];
    p[HIDDEN] = a->x->dim[1];
    p[SEQS] = segments_of(a, batch);
    p[SEQS] = p[SEQS] < 1 ? 1 : p[SEQS];
}

static const vt_impl *const segment_sum_impls[] = {
    CPU_ROWS(segment_sum),
    &segment_sum_cuda,
    NULL,
};

static const vt_operand segment_sum_operands[] = {
    {"batch", offsetof(segment_sum_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"x", offsetof(segment_sum_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"sum", offsetof(segment_sum_args, sum), VT_OPERAND_F32, false, true, 0},
    {"rest", offsetof(segment_sum_args, rest), VT_OPERAND_F32, false, true, 0},
};

const vt_op segment_sum_op = {
    CARD_OF(segment_sum),
    .what = "sums the hidden states of each sequence",
    .tolerance = 1e-6,
    .tolerance_reason = "double precision inside; the order of its additions differs",
    .refuses = segment_sum_refuses,
};
