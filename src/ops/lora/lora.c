/* Low-rank adapters: the card, its portable form and the reference. Of a decode the bytes of A and
 * B bound it: 4 rank (cols + rows) for each adapter that the step uses, whatever the number of
 * sequences that share it. */
#include "ops/lora/lora.h"

#include <math.h>

#include "ops/cases.h"
#include "ops/lora/lora_impls.h"
#include "ops/simd_portable.h"
#include "ops/lora/lora_kernel.h"

/* Each adapter that a sequence has is read once; tokens without one are not touched. */
static void add_part(const lora_args *a, const lora_part *p, const vt_batch *b, vt_cost *c)
{
    bool used[LORA_ADAPTERS + 1] = {false};
    int64_t both = a->x->dim[1] + p->y->dim[1], tokens = 0, work = 0, ranks = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        int32_t k = lora_of_seq(a, b, s), rank = lora_rank(p, k),
                n = b->q_start[s + 1] - b->q_start[s];
        tokens += rank > 0 ? n : 0;
        work += (int64_t)n * rank;
        ranks += used[k] ? 0 : rank;
        used[k] = true;
    }
    int64_t y = tokens * vt_dtype_row_bytes(p->y->dtype, p->y->dim[1]);
    c->read.weights += ranks * vt_dtype_row_bytes(p->a->dtype, both);
    c->read.activations += y;
    c->write.activations += y;
    *(a->x->dtype == VT_BF16 ? &c->flops.bf16 : &c->flops.fp32) += 2 * work * both;
}

/* Tokens whose sequences have a part somewhere: their rows of x are read once. */
static int64_t adapted_tokens(const lora_args *a, const vt_batch *b)
{
    int64_t tokens = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        int32_t k = lora_of_seq(a, b, s), rank = 0;
        for (int32_t i = 0; i < a->n_parts; i++)
            rank += lora_rank(&a->part[i], k);
        tokens += rank > 0 ? b->q_start[s + 1] - b->q_start[s] : 0;
    }
    return tokens;
}

static vt_cost lora_cost(const void *args, const vt_batch *batch)
{
    const lora_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    vt_cost c = {.read.activations = adapted_tokens(a, b) *
                                     vt_dtype_row_bytes(a->x->dtype, a->x->dim[1])};
    for (int32_t i = 0; i < a->n_parts; i++)
        add_part(a, &a->part[i], b, &c);
    return c;
}

static void reference_part(const lora_args *a, const lora_part *p, int64_t t)
{
    int32_t k = lora_of_seq(a, a->batch, a->batch->seq_of[t]);
    double scale = k > 0 ? (double)a->factor * (double)p->scale[k - 1] : 0;
    for (int32_t j = 0; j < lora_rank(p, k); j++) {
        int64_t row = p->first[k - 1] + j;
        double s = 0;
        for (int64_t i = 0; i < a->x->dim[1]; i++)
            s += (double)tensor_get(a->x, t, i) * (double)tensor_get(p->a, row, i);
        for (int64_t i = 0; i < p->y->dim[1]; i++)
            tensor_set(p->y, t, i,
                       (float)((double)tensor_get(p->y, t, i) +
                               scale * s * (double)tensor_get(p->b, row, i)));
    }
}

static void lora_reference(const void *args)
{
    const lora_args *a = args;
    for (int32_t i = 0; i < a->n_parts; i++)
        for (int64_t t = 0; t < a->x->dim[0]; t++)
            reference_part(a, &a->part[i], t);
}

enum { TOKENS, NONE, ADAPTERS, RANK, STEP, COLS, ROWS, PARTS, NEXT };

static const vt_field lora_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [NONE] = {"none", 0}, /* so many of them have no adapter */
    [ADAPTERS] = {"adapters", 1, false, LORA_ADAPTERS},
    [RANK] = {"rank", 16, false, LORA_RANK},
    [STEP] = {"step", 0, false, 8}, /* so much lower is each rank than the one before it */
    [COLS] = {"cols", 1024},
    [ROWS] = {"rows", 1024}, /* of the first part */
    [PARTS] = {"parts", 1, false, LORA_PARTS},
    [NEXT] = {"next_rows", 1024}, /* of the others */
};

static const char *lora_refuses(const vt_case *c)
{
    if (c->p[NONE] >= c->p[TOKENS])
        return "none: fewer than tokens";
    return c->p[ADAPTERS] > c->p[TOKENS] - c->p[NONE] ? "adapters: at most tokens with one" : NULL;
}

static const char *const lora_cases[] = {
    "*tokens=1|64 cols=4096 rows=4096 parts=3 next_rows=1024",
    "*tokens=1|64 cols=12288 rows=4096",
    "*tokens=64 adapters=8 cols=1024 rows=3072 parts=2 next_rows=3072",
    "*tokens=512 rank=64 cols=1024 rows=3072",
    "tokens=5 none=2 adapters=2 rank=3 cols=33 rows=17",
    "tokens=17 none=3 adapters=4 rank=9 step=1 cols=67 rows=130 parts=2 next_rows=65",
    "tokens=40 none=1 adapters=2 rank=70 step=5 cols=168 rows=72 parts=3 next_rows=136",
    "tokens=3 adapters=3 rank=8 step=4 cols=264 rows=64 parts=2 next_rows=200",
    "tokens=33 rank=512 cols=40 rows=24",
    "tokens=2 rank=1 cols=1 rows=1",
    NULL,
};

static const char *const lora_draws[] = {
    "tokens=4..40 none=0..1 adapters=1..3 rank=~70 step=0|1 cols=~500 rows=~500 parts=1..3 "
    "next_rows=~300",
    NULL,
};

/* A sequence for each adapter, the first ones a token longer where they cannot be equal, then one
 * without. */
static vt_batch *make_batch(vt_arena *arena, const int64_t *p, uint64_t *seed)
{
    case_seq seq[LORA_ADAPTERS + 1];
    int32_t n = 0, each = (int32_t)((p[TOKENS] - p[NONE]) / p[ADAPTERS]),
            more = (int32_t)((p[TOKENS] - p[NONE]) % p[ADAPTERS]);
    int32_t *adapter = vt_arena_alloc(arena, LORA_ADAPTERS + 1, sizeof *adapter);
    for (; adapter && n < p[ADAPTERS]; n++) {
        seq[n] = (case_seq){each + (n < more), each + (n < more)};
        adapter[n] = (int32_t)p[ADAPTERS] - n;
    }
    if (p[NONE] > 0)
        seq[n++] = (case_seq){(int32_t)p[NONE], (int32_t)p[NONE]};
    vt_batch *b = adapter ? case_batch(arena, 16, n, seq, false, 100, seed) : NULL;
    if (b)
        b->adapter = adapter;
    return b;
}

/* Fills a part; each of those behind the first has other ranks. False: out of memory. */
static bool make_part(const int64_t *p, int32_t index, const lora_args *a, vt_arena *arena,
                      uint64_t *seed, lora_part *out)
{
    int32_t *first = vt_arena_alloc(arena, (size_t)a->n + 1, sizeof *first);
    float *scale = vt_arena_alloc(arena, (size_t)a->n, sizeof *scale);
    for (int32_t k = 0; first && scale && k < a->n; k++) {
        int64_t rank = p[RANK] - p[STEP] * ((k + index) % a->n);
        first[k + 1] = first[k] + (int32_t)(rank > 0 ? rank : 0);
        scale[k] = 0.5f + (float)k / 8;
    }
    if (!first || !scale)
        return false;
    int64_t ranks = first[a->n], rows = index ? p[NEXT] : p[ROWS];
    vt_tensor *y = case_tensor_2d(arena, VT_F32, p[TOKENS], rows),
              *am = case_tensor_2d(arena, VT_F32, ranks, p[COLS]),
              *bm = case_tensor_2d(arena, VT_F32, ranks, rows);
    *out = (lora_part){
        .a = am, .b = bm, .y = y, .first = first, .scale = scale, .most_rank = (int32_t)p[RANK]};
    return case_fill(arena, y, 0, 1, seed) &&
           case_fill(arena, am, 0, 1 / sqrtf((float)p[COLS]), seed) &&
           case_fill(arena, bm, 0, 1 / sqrtf((float)p[RANK]), seed);
}

static void *lora_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                            vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    lora_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *batch = make_batch(arena, p, &seed);
    vt_tensor *x = case_tensor_2d(arena, VT_F32, p[TOKENS], p[COLS]);
    if (!a || !batch || !case_fill(arena, x, 0, 1, &seed))
        return NULL;
    *a = (lora_args){.batch = batch,
                     .x = x,
                     .n_parts = (int32_t)p[PARTS],
                     .n = (int32_t)p[ADAPTERS],
                     .factor = 0.75f};
    for (int32_t i = 0; i < a->n_parts; i++) {
        if (!make_part(p, i, a, arena, &seed, &a->part[i]))
            return NULL;
        outputs[i] = a->part[i].y;
    }
    *n_outputs = a->n_parts;
    return a;
}

/* Ranks that differ become their mean over tokens and parts. */
static void lora_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const lora_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    bool used[LORA_ADAPTERS + 1] = {false};
    int64_t none = 0, adapters = 0, work = 0;
    (void)most_weights;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        int32_t k = lora_of_seq(a, b, s), n = b->q_start[s + 1] - b->q_start[s], ranks = 0;
        for (int32_t i = 0; i < a->n_parts; i++)
            ranks += lora_rank(&a->part[i], k);
        none += ranks > 0 ? 0 : n;
        work += (int64_t)ranks * n;
        adapters += ranks > 0 && !used[k];
        used[k] = true;
    }
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[NONE] = none < p[TOKENS] ? none : p[TOKENS] - 1;
    p[ADAPTERS] = adapters > 0 ? adapters : 1;
    p[RANK] = none < p[TOKENS] ? vt_ceil_div(work, (p[TOKENS] - none) * a->n_parts) : 1;
    p[STEP] = 0;
    p[COLS] = a->x->dim[1];
    p[ROWS] = a->part[0].y->dim[1];
    p[PARTS] = a->n_parts;
    p[NEXT] = a->n_parts > 1 ? a->part[1].y->dim[1] : p[ROWS];
}

static const vt_impl *const lora_impls[] = {CPU_ROWS(lora), &lora_cuda_cluster, &lora_cuda_alone,
                                            NULL};

#define PART_OPERANDS(i)                                                                 \
    {"a" #i, offsetof(lora_args, part[i].a), VT_OPERAND_ACTIVATION, true, false, 0},     \
        {"b" #i, offsetof(lora_args, part[i].b), VT_OPERAND_ACTIVATION, true, false, 0}, \
    {                                                                                    \
        "y" #i, offsetof(lora_args, part[i].y), VT_OPERAND_ACTIVATION, true, true, 0     \
    }

static const vt_operand lora_operands[] = {
    {"batch", offsetof(lora_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"x", offsetof(lora_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    PART_OPERANDS(0),
    PART_OPERANDS(1),
    PART_OPERANDS(2),
};

const vt_op lora_op = {
    CARD_OF(lora),
    .what = "adds what each sequence's adapter makes of a product's input",
    .tolerance = 1e-5,
    .tolerance_reason = "two chains of fp32 products, summed in another order",
    .refuses = lora_refuses,
};
