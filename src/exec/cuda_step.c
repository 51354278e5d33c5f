/* A step's block: one copy from pinned memory to one device address.
 *
 *   row_token | sample rows || token | position | seq_of | slot | q_start | kv_len | page_start |
 *   decode plan | prefill plan | page ids
 *
 * What rows need ends at a fixed place, what the layers need begins there; so either part's
 * addresses follow from its own sizes alone, and a captured graph finds its arrays again. Page ids
 * come last, because their number changes every step.
 *
 * Contexts of rows with penalties, biases and masks (19 KB a row for 151,936 ids) are copied apart.
 *
 * A step that can be a graph is padded to a bucket:
 *
 *   decode   n sequences to the next of kBuckets: a padding row has token 0, one KV token in a page
 *            that belongs to nobody, greedy sampling and no pool slot
 *   others   tokens to 16, 32 or the next multiple of 64. Padding tokens belong to no sequence:
 *            their K and V go to nobody's page and nothing attends to or from them. Plan items
 *            without work have sequence -1; their number is a power of two, or the need of 1, 4,
 *            16 ... decodes
 *   rows     to the next of kBuckets; padding rows norm token 0's stream once more
 *
 * Attention may share pages in a batch (attention_may_share) where it may in the bucket: both
 * ladders have 4 decodes.
 *
 * Results of padding are not read, and what is read is bitwise what the step gives unpadded: no op
 * mixes tokens but attention, whose plan is made without the padding; and a linear picks kernel,
 * split and order of sums alike for all numbers of tokens of a bucket (borders at 16, 32, 64 and
 * multiples of 64: linear_cuda.c, linear_sm90.c). */
#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "exec/cuda_inside.h"

static size_t take(size_t *at, int64_t n, size_t size)
{
    size_t here = *at;
    *at = vt_round_up(here + (size_t)n * size, 16);
    return here;
}

static int32_t least(int64_t a, int64_t b) { return (int32_t)(a < b ? a : b); }

int32_t cuda_step_bucket(int32_t n, int32_t most)
{
    static const int32_t kBuckets[] = {1,  2,  4,  8,   16,  24,  32,  48,
                                       64, 80, 96, 128, 160, 192, 224, 256};
    for (size_t i = 0; i < sizeof kBuckets / sizeof *kBuckets && n <= most; i++)
        if (kBuckets[i] >= n)
            return least(kBuckets[i], most);
    return 0;
}

int32_t cuda_step_most_decode(const cuda_executor *x)
{
    const vt_limits *lim = &x->config.limits;
    return least(least(lim->max_seqs, lim->max_tokens), lim->max_rows);
}

size_t cuda_step_tail_bytes(int32_t rows)
{
    return vt_round_up((size_t)rows * 4, 16) +
           vt_round_up((size_t)rows * sizeof(sample_cuda_row), 16);
}

step_layout cuda_step_layout(const cuda_executor *x, const step_shape *s)
{
    step_layout l;
    size_t at = l.begin = x->tail_bytes - cuda_step_tail_bytes(s->rows);
    l.row_token = take(&at, s->rows, 4);
    l.rows = take(&at, s->rows, sizeof(sample_cuda_row));
    l.token = take(&at, s->tokens, 4);
    l.position = take(&at, s->tokens, 4);
    l.seq_of = take(&at, s->tokens, 4);
    l.slot = take(&at, s->tokens, 4);
    l.q_start = take(&at, s->seqs + 1, 4);
    l.kv_len = take(&at, s->seqs, 4);
    l.page_start = take(&at, s->seqs + 1, 4);
    l.decode_plan = take(
        &at, (int64_t)attention_decode_plan_ints(s->decode_items, s->decode_items ? s->seqs : 0),
        4);
    l.prefill_plan = take(&at, (int64_t)s->prefill_items * PREFILL_ITEM_INTS, 4);
    l.page_ids = at;
    return l;
}

/* ---- shapes ---- */

static void set_decodes(const cuda_executor *x, int32_t n, step_shape *s)
{
    s->decodes = n;
    s->decode_items = n > 0 ? attention_decode_capacity(&x->plan, n, x->config.limits.max_context)
                            : 0;
}

step_shape cuda_step_decode(const cuda_executor *x, int32_t seqs)
{
    step_shape s = {.tokens = seqs, .seqs = seqs, .rows = seqs, .decode = true};
    set_decodes(x, seqs, &s);
    return s;
}

step_shape cuda_step_largest(const cuda_executor *x)
{
    const vt_limits *lim = &x->config.limits;
    step_shape s = {
        .tokens = lim->max_tokens,
        .seqs = lim->max_seqs,
        .rows = lim->max_rows,
        .prefill_items = attention_prefill_capacity(&x->plan, lim->max_seqs, lim->max_tokens)};
    set_decodes(x, lim->max_seqs, &s);
    return s;
}

/* The first of first, first * factor ... that is at least n. */
static int32_t power_at_least(int32_t n, int32_t first, int32_t factor)
{
    int64_t p = first;
    while (p < n)
        p *= factor;
    return (int32_t)p;
}

/* Tokens, sequences and plan items of the layers' part, padded. */
static void pad_body(const cuda_executor *x, int32_t n_decode, step_shape *s)
{
    const vt_limits *lim = &x->config.limits;
    step_shape most = cuda_step_largest(x);
    int32_t t = s->tokens <= 16 ? 16 : s->tokens <= 32 ? 32 : (s->tokens + 63) / 64 * 64;
    s->tokens = least(t, lim->max_tokens);
    s->seqs = lim->max_seqs;
    if (n_decode > 0)
        set_decodes(x, least(power_at_least(n_decode, 1, 4), lim->max_seqs), s);
    if (s->prefill_items > 0)
        s->prefill_items = least(power_at_least(s->prefill_items, 8, 2), most.prefill_items);
    s->body = true;
}

step_shape cuda_step_shape(const cuda_executor *x, const vt_batch *b)
{
    int32_t n = 0, rows = 0;
    if (x->options.graphs && b->n_decode == b->n_seqs && b->n_rows == b->n_seqs)
        n = cuda_step_bucket(b->n_seqs, cuda_step_most_decode(x));
    if (n > 0)
        return cuda_step_decode(x, n);
    step_shape s = {.tokens = b->n_tokens, .seqs = b->n_seqs, .rows = b->n_rows};
    set_decodes(x, b->n_decode, &s);
    for (int32_t i = b->n_decode; i < b->n_seqs; i++)
        s.prefill_items += attention_prefill_capacity(&x->plan, 0,
                                                      b->q_start[i + 1] - b->q_start[i]);
    if (x->options.graphs && b->n_tokens <= x->graph_tokens)
        pad_body(x, b->n_decode, &s);
    if (x->options.graphs && b->n_rows > 0)
        rows = cuda_step_bucket(b->n_rows, x->config.limits.max_rows);
    if (rows > 0) {
        s.rows = rows;
        s.tail = true;
    }
    return s;
}

/* The batch with the shape's sizes and the device's addresses. */
static vt_batch device_batch(const cuda_executor *x, const step_shape *s, const step_layout *l)
{
    const char *base = x->step_block;
    return (vt_batch){.n_tokens = s->tokens,
                      .n_seqs = (s->decode_items > 0) + (s->prefill_items > 0),
                      .n_decode = s->decode_items > 0, /* which of the two attentions run */
                      .n_rows = s->rows,
                      .page_size = x->config.limits.page_size,
                      .token = (const void *)(base + l->token),
                      .position = (const void *)(base + l->position),
                      .seq_of = (const void *)(base + l->seq_of),
                      .slot = (const void *)(base + l->slot),
                      .q_start = (const void *)(base + l->q_start),
                      .kv_len = (const void *)(base + l->kv_len),
                      .page_start = (const void *)(base + l->page_start),
                      .page_ids = (const void *)(base + l->page_ids),
                      .row_token = (const void *)(base + l->row_token)};
}

void cuda_step_bind(cuda_executor *x, const step_shape *s)
{
    step_layout l = cuda_step_layout(x, s);
    vt_batch batch = device_batch(x, s, &l);
    vt_program_bind(x->prog, &batch, NULL);
    x->lane.decodes = s->decodes;
    x->lane.decode_items = s->decode_items;
    x->lane.decode_shares = attention_may_share(&x->plan, s->decodes);
    x->lane.prefill_items = s->prefill_items;
    x->lane.attention_plan = (const void *)((char *)x->step_block + l.decode_plan);
    x->lane.prefill_plan = (const void *)((char *)x->step_block + l.prefill_plan);
    x->lane.sample_rows = (const void *)((char *)x->step_block + l.rows);
}

static void copy_ints(char *to, const int32_t *from, int64_t n, int64_t padded)
{
    memcpy(to, from, (size_t)n * 4);
    memset(to + n * 4, 0, (size_t)(padded - n) * 4);
}

/* The device's pages come after nobody's: cuda_kv.c. Padding is nobody's. */
static void copy_shifted(char *to, const int32_t *from, int64_t n, int64_t padded, int32_t by)
{
    int32_t *out = (int32_t *)to;
    for (int64_t i = 0; i < n; i++)
        out[i] = from[i] + by;
    memset(out + n, 0, (size_t)(padded - n) * 4);
}

/* A decode bucket's sequences beyond the step's: one token each, in nobody's page. */
static void pad_sequences(const cuda_executor *x, const vt_batch *b, const step_shape *s,
                          const step_layout *l, char *out, int32_t n_items)
{
    int32_t *q_start = (int32_t *)(out + l->q_start), *kv_len = (int32_t *)(out + l->kv_len),
            *page_start = (int32_t *)(out + l->page_start),
            *page_ids = (int32_t *)(out + l->page_ids),
            *row_token = (int32_t *)(out + l->row_token), *plan = (int32_t *)(out + l->decode_plan);
    for (int32_t q = b->n_seqs; q < s->seqs; q++) {
        int32_t i = q - b->n_seqs;
        q_start[q + 1] = q + 1;
        kv_len[q] = 1;
        page_ids[b->n_pages + i] = 0;
        page_start[q + 1] = b->n_pages + i + 1;
        row_token[q] = q;
        n_items += attention_decode_single(&x->plan, q, plan, n_items);
    }
}

size_t cuda_step_fill(cuda_executor *x, const vt_step *step, const step_shape *s, char *out)
{
    const vt_batch *b = &step->batch;
    step_layout l = cuda_step_layout(x, s);
    int32_t n_items, n_tiles, extra = s->decode ? s->seqs - b->n_seqs : 0;
    copy_ints(out + l.row_token, b->row_token, b->n_rows, s->rows);
    copy_ints(out + l.token, b->token, b->n_tokens, s->tokens);
    copy_ints(out + l.position, b->position, b->n_tokens, s->tokens);
    copy_ints(out + l.seq_of, b->seq_of, b->n_tokens, s->tokens);
    copy_shifted(out + l.slot, b->slot, b->n_tokens, s->tokens, x->config.limits.page_size);
    copy_ints(out + l.q_start, b->q_start, b->n_seqs + 1, b->n_seqs + 1);
    copy_ints(out + l.kv_len, b->kv_len, b->n_seqs, b->n_seqs);
    copy_ints(out + l.page_start, b->page_start, b->n_seqs + 1, b->n_seqs + 1);
    copy_shifted(out + l.page_ids, b->page_ids, b->n_pages, b->n_pages, 1);
    attention_cuda_plan(&x->plan, b, (int32_t *)(out + l.decode_plan), s->decode_items,
                        (int32_t *)(out + l.prefill_plan), s->prefill_items, &n_items, &n_tiles);
    int32_t n_shared = attention_shared_items(&x->plan, (const int32_t *)(out + l.decode_plan),
                                              n_items);
    assert(n_shared == 0 || attention_may_share(&x->plan, s->decodes));
    x->shared_items += (uint64_t)n_shared;
    if (extra > 0)
        pad_sequences(x, b, s, &l, out, n_items);
    return l.page_ids + (size_t)(b->n_pages + extra) * 4;
}

/* Contexts, biases, masks: where they lie in `extra`, one behind the other, and on the device. */
typedef struct extra_array {
    size_t at, bytes;
    void *to;
    const char *what;
} extra_array;

static vt_status grow_extra(cuda_executor *x, result_slot *slot, size_t bytes, vt_err *err)
{
    void *p;
    if (bytes <= slot->extra_bytes)
        return VT_OK;
    TRY(vt_cuda_pinned(x->cuda, 2 * bytes, &p, err));
    vt_cuda_pinned_free(x->cuda, slot->extra);
    slot->extra = p;
    slot->extra_bytes = 2 * bytes;
    return VT_OK;
}

vt_status cuda_step_fill_rows(cuda_executor *x, const vt_step *step, const step_shape *s,
                              result_slot *slot, vt_err *err)
{
    step_layout l = cuda_step_layout(x, s);
    int32_t n = step->batch.n_rows, vocab = x->model->arch.vocab;
    sample_cuda_row *to = (sample_cuda_row *)(slot->step_block + l.rows);
    sample_cuda_counts c = sample_cuda_count(step->rows, n, vocab);
    if (c.contexts > x->most.contexts || c.biases > x->most.biases ||
        c.mask_words > x->most.mask_words)
        return vt_fail(err, VT_ERR_MEMORY,
                       "step %llu: %lld tokens of context, %lld biases and %lld words of masks are "
                       "beyond %lld, %lld and %lld",
                       (unsigned long long)step->id, (long long)c.contexts, (long long)c.biases,
                       (long long)c.mask_words, (long long)x->most.contexts,
                       (long long)x->most.biases, (long long)x->most.mask_words);
    size_t bytes = 0;
    extra_array array[] = {
        {take(&bytes, c.contexts, 4), (size_t)c.contexts * 4, x->contexts, "uploading contexts"},
        {take(&bytes, c.biases, 8), (size_t)c.biases * 8, x->biases, "uploading biases"},
        {take(&bytes, c.mask_words, 4), (size_t)c.mask_words * 4, x->masks, "uploading masks"}};
    TRY(grow_extra(x, slot, bytes, err));
    sample_cuda_pack(step->rows, n, vocab, to, (int32_t *)(slot->extra + array[0].at),
                     (vt_logit_bias *)(slot->extra + array[1].at),
                     (uint32_t *)(slot->extra + array[2].at));
    for (int32_t i = n; i < s->rows; i++)
        to[i] = sample_cuda_padding();
    for (int i = 0; i < 3; i++) {
        const extra_array *a = &array[i];
        if (a->bytes == 0)
            continue;
        cuda_spans_moved(x, VT_MOVE_TO_DEVICE, a->bytes);
        TRY(vt_cuda_check(x->cuda,
                          x->cuda->driver.copy_to_device(cuda_address(a->to), slot->extra + a->at,
                                                         a->bytes, x->lane.stream),
                          a->what, err));
    }
    return VT_OK;
}
