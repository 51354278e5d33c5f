/* A step's block: one copy from pinned memory to one device address.
 *
 *   row_token | plans of calls for rows || token | position | seq_of | slot | q_start | kv_len |
 *   page_start | plans of the other calls | page ids
 *
 * What rows need ends at a fixed place, what the layers need begins there; so either part's
 * addresses follow from its own sizes alone, and a captured graph finds its arrays again. Page ids
 * come last, because their number changes every step. Where plans lie is found by walking the
 * program's list of them.
 *
 * Side data (the contexts of rows with penalties, biases, masks, page copies) are copied apart,
 * into a range of addresses that is reserved whole and gets memory as far as some step needed.
 *
 * A step that can be a graph is padded to a bucket:
 *
 *   decode   n sequences to the next of kBuckets: a padding row has token 0, one KV token in the
 *            padding page, greedy sampling and no pool slot
 *   others   tokens to 16, 32 or the next multiple of 64. Padding tokens belong to no sequence:
 *            their K and V go to the padding page and nothing attends to or from them. Decodes are
 *            counted as 1, 4, 16 ...; plans round their items (vt_size.bucket)
 *   rows     to the next of kBuckets; padding rows norm token 0's stream once more
 *
 * Results of padding are not read, and what is read is bitwise what the step gives unpadded: no op
 * mixes tokens but attention, whose plan is made without the padding; and rows of a card are chosen
 * alike for all numbers of tokens of a bucket (vt_op_choose). */
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

/* ---- the block ---- */

static size_t plan_bytes(const cuda_executor *x, int32_t i, const vt_size *size, int32_t items)
{
    const vt_program_plan *p = &x->prog->plan[i];
    return p->plan->bytes(p->args, &x->prog->target, size, items);
}

/* Plans of calls for rows have as many items as rows, whatever else the step has. */
static int32_t row_items(const cuda_executor *x, int32_t i, const vt_size *size)
{
    const vt_program_plan *p = &x->prog->plan[i];
    return p->plan->items(p->args, &x->prog->target, size, NULL);
}

size_t cuda_step_tail_bytes(const cuda_executor *x, int32_t rows)
{
    vt_size size = {.rows = rows};
    size_t bytes = vt_round_up((size_t)rows * 4, 16);
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if (x->prog->plan[i].when == VT_WHEN_ROWS)
            bytes += vt_round_up(plan_bytes(x, i, &size, row_items(x, i, &size)), 16);
    return bytes;
}

step_layout cuda_step_layout(const cuda_executor *x, const step_shape *s)
{
    const vt_size *n = &s->size;
    step_layout l;
    size_t at = l.begin = x->tail_bytes - cuda_step_tail_bytes(x, n->rows);
    l.row_token = take(&at, n->rows, 4);
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if (x->prog->plan[i].when == VT_WHEN_ROWS)
            l.plan[i] = take(&at, 1, plan_bytes(x, i, n, n->rows ? row_items(x, i, n) : 0));
    l.token = take(&at, n->tokens, 4);
    l.position = take(&at, n->tokens, 4);
    l.seq_of = take(&at, n->tokens, 4);
    l.slot = take(&at, n->tokens, 4);
    l.q_start = take(&at, n->seqs + 1, 4);
    l.kv_len = take(&at, n->seqs, 4);
    l.page_start = take(&at, n->seqs + 1, 4);
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if (x->prog->plan[i].when != VT_WHEN_ROWS)
            l.plan[i] = take(&at, 1, s->used[i] ? plan_bytes(x, i, n, s->items[i]) : 0);
    l.page_ids = at;
    return l;
}

/* ---- shapes ---- */

/* The items of every plan that a step of the shape's size wants. batch NULL: the most. */
static void set_items(const cuda_executor *x, const vt_batch *batch, step_shape *s)
{
    vt_program_plans_used(x->prog, &s->size, s->used);
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        s->items[i] = s->used[i] ? p->plan->items(p->args, &x->prog->target, &s->size, batch) : 0;
    }
}

step_shape cuda_step_of_size(const cuda_executor *x, const vt_size *size)
{
    step_shape s = {.size = *size};
    set_items(x, NULL, &s);
    return s;
}

step_shape cuda_step_decode(const cuda_executor *x, int32_t seqs)
{
    step_shape s = {
        .size = {.tokens = seqs, .seqs = seqs, .rows = seqs, .decodes = seqs, .bucket = true},
        .decode = true};
    set_items(x, NULL, &s);
    return s;
}

/* The first of 1, 4, 16 ... that is at least n. */
static int32_t power_of_4(int32_t n)
{
    int64_t p = 1;
    while (p < n)
        p *= 4;
    return (int32_t)(p < INT32_MAX ? p : INT32_MAX);
}

/* Tokens, sequences and decodes of the layers' part, padded. */
static void pad_body(const cuda_executor *x, vt_size *n)
{
    const vt_limits *lim = &x->config.limits;
    int32_t t = n->tokens <= 16 ? 16 : n->tokens <= 32 ? 32 : (n->tokens + 63) / 64 * 64;
    n->tokens = least(t, lim->max_tokens);
    n->seqs = lim->max_seqs;
    if (n->decodes > 0)
        n->decodes = least(power_of_4(n->decodes), lim->max_seqs);
    n->bucket = true;
}

step_shape cuda_step_shape(const cuda_executor *x, const vt_batch *b)
{
    int32_t n = 0, rows = 0;
    if (x->options.graphs && b->n_decode == b->n_seqs && b->n_rows == b->n_seqs)
        n = cuda_step_bucket(b->n_seqs, cuda_step_most_decode(x));
    step_shape s = {.size = vt_size_of(b)};
    if (n > 0) {
        s = cuda_step_decode(x, n);
        s.size.pad_seqs = n - b->n_seqs;
        s.size.copies = b->n_copies;
        set_items(x, b, &s);
        return s;
    }
    if (x->options.graphs && b->n_tokens <= x->graph_tokens) {
        pad_body(x, &s.size);
        s.body = true;
    }
    if (x->options.graphs && b->n_rows > 0)
        rows = cuda_step_bucket(b->n_rows, x->config.limits.max_rows);
    if (rows > 0) {
        s.size.rows = rows;
        s.tail = true;
    }
    set_items(x, b, &s);
    return s;
}

/* The batch as the device sees it: the shape's sizes, addresses of the block's arrays. */
static vt_batch device_batch(const cuda_executor *x, const vt_size *n, const step_layout *l)
{
    const char *base = x->step_block;
    return (vt_batch){.n_tokens = n->tokens,
                      .n_seqs = n->seqs,
                      .n_decode = n->decodes,
                      .n_rows = n->rows,
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
    x->bound = s;
    x->bound_layout = cuda_step_layout(x, s);
    vt_batch batch = device_batch(x, &s->size, &x->bound_layout);
    vt_program_bind(x->prog, &batch, &s->size, x->prog->rows);
}

/* ---- filling ---- */

static void copy_ints(char *to, const int32_t *from, int64_t n, int64_t padded)
{
    memcpy(to, from, (size_t)n * 4);
    memset(to + n * 4, 0, (size_t)(padded - n) * 4);
}

/* The device's pages come after the padding page (cuda_kv.c). */
static void copy_shifted(char *to, const int32_t *from, int64_t n, int64_t padded, int32_t by)
{
    int32_t *out = (int32_t *)to;
    for (int64_t i = 0; i < n; i++)
        out[i] = from[i] + by;
    memset(out + n, 0, (size_t)(padded - n) * 4);
}

/* A decode bucket's sequences beyond the step's: one token each, in the padding page. */
static void pad_sequences(const vt_batch *b, const vt_size *n, const step_layout *l, char *out)
{
    int32_t *q_start = (int32_t *)(out + l->q_start), *kv_len = (int32_t *)(out + l->kv_len),
            *page_start = (int32_t *)(out + l->page_start),
            *page_ids = (int32_t *)(out + l->page_ids),
            *row_token = (int32_t *)(out + l->row_token);
    for (int32_t i = 0; i < n->pad_seqs; i++) {
        int32_t q = b->n_seqs + i;
        q_start[q + 1] = q + 1;
        kv_len[q] = 1;
        page_ids[b->n_pages + i] = 0;
        page_start[q + 1] = b->n_pages + i + 1;
        row_token[q] = q;
    }
}

/* A plan that asks for more items than the shape has room for would be cut short without a word. */
static void fill_plans(cuda_executor *x, const vt_batch *b, const step_shape *s,
                       const step_layout *l, char *out)
{
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        if (!s->used[i] || p->plan->most_side_bytes) /* those are filled with their side data */
            continue;
        int32_t n = p->plan->fill(p->args, &x->prog->target, &s->size, b, s->items[i],
                                  out + l->plan[i], NULL);
        assert(n <= s->items[i]);
        if (p->plan->shared)
            x->shared_items += (uint64_t)p->plan->shared(out + l->plan[i], n);
    }
}

size_t cuda_step_fill(cuda_executor *x, const vt_step *step, const step_shape *s, char *out)
{
    const vt_batch *b = &step->batch;
    const vt_size *n = &s->size;
    step_layout l = cuda_step_layout(x, s);
    copy_ints(out + l.row_token, b->row_token, b->n_rows, n->rows);
    copy_ints(out + l.token, b->token, b->n_tokens, n->tokens);
    copy_ints(out + l.position, b->position, b->n_tokens, n->tokens);
    copy_ints(out + l.seq_of, b->seq_of, b->n_tokens, n->tokens);
    copy_shifted(out + l.slot, b->slot, b->n_tokens, n->tokens, x->config.limits.page_size);
    copy_ints(out + l.q_start, b->q_start, b->n_seqs + 1, b->n_seqs + 1);
    copy_ints(out + l.kv_len, b->kv_len, b->n_seqs, b->n_seqs);
    copy_ints(out + l.page_start, b->page_start, b->n_seqs + 1, b->n_seqs + 1);
    copy_shifted(out + l.page_ids, b->page_ids, b->n_pages, b->n_pages, x->kv.first_page);
    fill_plans(x, b, s, &l, out);
    pad_sequences(b, n, &l, out);
    return l.page_ids + (size_t)(b->n_pages + n->pad_seqs) * 4;
}

/* ---- side data ---- */

static vt_status grow_pinned(cuda_executor *x, result_slot *slot, size_t bytes, vt_err *err)
{
    void *p;
    if (bytes <= slot->side_bytes)
        return VT_OK;
    TRY(vt_cuda_pinned(x->cuda, 2 * bytes, &p, err));
    vt_cuda_pinned_free(x->cuda, slot->side);
    slot->side = p;
    slot->side_bytes = 2 * bytes;
    return VT_OK;
}

static vt_status upload_one(cuda_executor *x, const char *from, int32_t plan, size_t bytes,
                            vt_err *err)
{
    char *to = (char *)x->side.base + (size_t)x->side_part[plan] * x->side.stride;
    if (bytes == 0)
        return VT_OK;
    TRY(cuda_range_grow(x->cuda, &x->side, bytes, err));
    TRY(vt_observe(x->observer, VT_MARK_IN, (int64_t)bytes, err));
    return vt_cuda_check(
        x->cuda, x->cuda->driver.copy_to_device(cuda_address(to), from, bytes, x->lane.stream),
        x->prog->plan[plan].plan->name, err);
}

vt_status cuda_step_upload_side(cuda_executor *x, const vt_step *step, const step_shape *s,
                                result_slot *slot, vt_err *err)
{
    step_layout l = cuda_step_layout(x, s);
    size_t bytes[VT_MAX_PLANS] = {0}, sum = 0, at = 0;
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        if (!s->used[i] || x->side_part[i] < 0)
            continue;
        bytes[i] = p->plan->side_bytes(p->args, &step->batch);
        if (bytes[i] > p->plan->most_side_bytes(p->args, &x->prog->target))
            return vt_fail(err, VT_ERR_USAGE,
                           "step %llu brings %zu bytes of %s, expected at most %zu",
                           (unsigned long long)step->id, bytes[i], p->plan->name,
                           p->plan->most_side_bytes(p->args, &x->prog->target));
        sum += vt_round_up(bytes[i], 16);
    }
    TRY(grow_pinned(x, slot, sum, err));
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        if (!s->used[i] || x->side_part[i] < 0)
            continue;
        p->plan->fill(p->args, &x->prog->target, &s->size, &step->batch, s->items[i],
                      slot->step_block + l.plan[i], slot->side + at);
        TRY(upload_one(x, slot->side + at, i, bytes[i], err));
        at += vt_round_up(bytes[i], 16);
    }
    return VT_OK;
}
