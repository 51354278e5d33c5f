/* A step's block: everything that the calls of a step read from the host, in one piece of pinned
 * memory that is copied to one device address.
 *
 *   0           begin                   tail_bytes                          page_ids
 *   |  unused   |  for the rows         |  for the layers                   |          |
 *   |           |  row_token            |  token, position, seq_of, slot,   | page ids |
 *   |           |  plans of calls       |  q_start, kv_len, page_start,     |          |
 *   |           |  for rows             |  window pages' slots and starts,  |          |
 *   |           |                       |  state slots, hidden states,      |          |
 *   |           |                       |  texts, other plans               |          |
 *               <- size from rows only -><- size from tokens, seqs, items --><- varies ->
 *               <------------------- these bytes are copied ---------------------------->
 *
 * The part for the rows always ends at tail_bytes, the size that it has with max_rows rows, and the
 * part for the layers begins there. So the addresses in either part depend on its own sizes alone,
 * and a captured graph, which knows the sizes of only one part, finds its arrays again. Page ids
 * come last because their number changes every step. The plans of each part lie in the order of the
 * program's list of plans.
 *
 * Side data (the contexts of rows with penalties, biases, masks, page copies) are copied
 * separately. They go to a range of addresses that is reserved whole and has as much memory as any
 * step so far needed.
 *
 * A step that can be a graph is padded to a bucket:
 *
 *   decode   the sequences are padded to the next size in kBuckets. A padding sequence has token 0,
 *            one KV token in the padding page, greedy sampling and no pool slot. Where decodes
 *            bring several tokens, tokens and rows are then padded to the next size in kBuckets,
 *            and the most tokens of a decode to 2, 4 or 8
 *   others   the tokens are padded as vt_padded_tokens() says. Padding tokens belong to no
 *            sequence: their K and V go to the padding page and nothing attends to or from them.
 *            The number of decodes is rounded up to 1, 4, 16 ...; plans round their numbers of
 *            items (vt_size.bucket)
 *   rows     the rows are padded to the next size in kBuckets. A padding row computes the norm of
 *            token 0's stream once more
 *
 * Results of padding are never read. Results that are read are bitwise those of the unpadded step:
 * the only op that mixes tokens is attention, and its plan is made without the padding; and one
 * implementation of each op is chosen for all numbers of tokens in a bucket (vt_op_choose). */
#include <string.h>

#include "base/err.h"
#include "exec/cuda_inside.h"
#include "ops/calls/on_cpu.h"

/* Reserves n elements of `size` bytes at *at and moves *at after them, 16-byte aligned. Returns
 * the offset of the first. */
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

/* The items of a plan of calls for rows. They depend on the number of rows and on nothing else of
 * the step, so no batch is needed. */
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

/* Returns true if steps can have guesses of a model with sequence state. */
static bool states_behind(const cuda_executor *x)
{
    return x->kv.n_states > 0 && x->config.limits.decode_tokens > 1;
}

/* Returns the bytes of the hidden state that an MTP head reads beside a token; 0: it is none. */
static size_t before_bytes(const cuda_executor *x)
{
    const vt_tensor *t = x->prog->before;
    return t ? (size_t)vt_dtype_row_bytes(t->dtype, t->dim[1]) : 0;
}

/* Lays out the block for a shape (picture above):
 *
 *   1. The part for the rows begins as far before tail_bytes as it needs.
 *   2. Its arrays and plans fill it exactly, so that `at` arrives at tail_bytes.
 *   3. The arrays of the layers follow, then the plans that this step uses (others take 0 bytes).
 *   4. Page ids begin where everything else ends. */
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
    bool windows = x->kv.n_windows > 0;
    l.window_slot = take(&at, windows ? n->tokens : 0, 4);
    l.window_page_start = take(&at, windows ? n->seqs + 1 : 0, 4);
    int32_t stateful = x->kv.n_states > 0 ? n->seqs : 0;
    l.state_from = take(&at, stateful, 4);
    l.state_to = take(&at, stateful, 4);
    l.state_behind = take(&at, states_behind(x) ? n->tokens : 0, 4);
    l.hidden = take(&at, n->tokens, before_bytes(x));
    l.second = take(&at, x->pairs ? n->seqs : 0, 4);
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if (x->prog->plan[i].when != VT_WHEN_ROWS)
            l.plan[i] = take(&at, 1, s->used[i] ? plan_bytes(x, i, n, s->items[i]) : 0);
    l.page_ids = at;
    return l;
}

/* ---- shapes ---- */

/* The batch that a plan is made from. */
static vt_batch batch_of_plan(const cuda_executor *x, const vt_program_plan *p, const vt_batch *b)
{
    vt_batch seen = p->windowed ? vt_program_windowed(b) : *b;
    seen.window = p->windowed ? x->window : 0;
    return seen;
}

/* Sets which plans a step of this size uses, how many items each of them has and which variant of
 * its kernel the batch needs. Where `batch` is NULL the items are the most that any batch of this
 * size could need, and the variant is 0. */
static void set_items(const cuda_executor *x, const vt_batch *batch, step_shape *s)
{
    vt_program_plans_used(x->prog, &s->size, s->used);
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        const vt_target *t = &x->prog->target;
        vt_batch seen = batch ? batch_of_plan(x, p, batch) : (vt_batch){0};
        const vt_batch *b = batch ? &seen : NULL;
        s->items[i] = s->used[i] ? p->plan->items(p->args, t, &s->size, b) : 0;
        s->variant[i] = s->used[i] ? vt_plan_variant(p->plan, p->args, t, &s->size, b) : 0;
    }
}

step_shape cuda_step_of_size(const cuda_executor *x, const vt_size *size)
{
    step_shape s = {.size = *size};
    set_items(x, NULL, &s);
    return s;
}

/* The batch as the rows of the cards see it: sequences with guesses are decodes, unless one has
 * more tokens than the limits allow. */
static vt_batch with_drafts(const cuda_executor *x, const vt_batch *b)
{
    vt_batch v = *b;
    int32_t end = b->n_decode + b->n_drafted;
    for (int32_t s = b->n_decode; s < end; s++)
        if (b->q_start[s + 1] - b->q_start[s] > x->config.limits.decode_tokens)
            return v;
    v.n_decode = end;
    v.n_drafted = 0;
    return v;
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

/* Pads the sizes that the layers depend on: tokens, sequences and decodes. */
static void pad_body(const cuda_executor *x, vt_size *n)
{
    const vt_limits *lim = &x->config.limits;
    n->tokens = least(vt_padded_tokens(n->tokens), lim->max_tokens);
    n->seqs = lim->max_seqs;
    if (n->decodes > 0)
        n->decodes = least(power_of_4(n->decodes), lim->max_seqs);
    n->bucket = true;
}

/* Pads a batch of decodes alone, each token of which has a row of logits, to a decode bucket. False
 * if it is another batch, if no bucket is large enough, or if the tokens of padding sequences lead
 * to a size at which other rows may be chosen: 4 tokens of 3 sequences would become 8 of 4. */
static bool pad_decodes(const cuda_executor *x, const vt_batch *b, step_shape *s)
{
    if (b->n_decode < b->n_seqs || b->n_rows != b->n_tokens)
        return false;
    const vt_limits *lim = &x->config.limits;
    int32_t n = cuda_step_bucket(b->n_seqs, cuda_step_most_decode(x)), tokens = n,
            several = vt_decode_tokens(b);
    if (several)
        tokens = cuda_step_bucket(b->n_tokens + n - b->n_seqs,
                                  least(lim->max_tokens, lim->max_rows));
    if (n == 0 || tokens == 0 || vt_padded_tokens(tokens) != vt_padded_tokens(b->n_tokens))
        return false;
    *s = (step_shape){.size = {.tokens = tokens,
                               .seqs = n,
                               .rows = tokens,
                               .decodes = n,
                               .decode_tokens = several,
                               .copies = b->n_copies,
                               .pad_seqs = n - b->n_seqs,
                               .bucket = true},
                      .decode = true};
    return true;
}

/* The shape that a batch runs with. Nothing is padded when graphs are off; else:
 *
 *   1. A batch of decodes alone, each token of which has a row of logits, is padded to a decode
 *      bucket as a whole, if there is a bucket large enough.
 *   2. Any other batch of at most graph_tokens tokens gets padded layers (`body`).
 *   3. Independently of that, its rows are padded to a row bucket if there is one (`tail`).
 *   4. The plans' items follow from the padded sizes and the batch. */
step_shape cuda_step_shape(const cuda_executor *x, const vt_batch *batch)
{
    int32_t rows = 0;
    vt_batch b = with_drafts(x, batch);
    step_shape s = {.size = vt_size_of(&b)};
    if (x->options.graphs && pad_decodes(x, &b, &s)) {
        set_items(x, &b, &s);
        return s;
    }
    if (x->options.graphs && b.n_tokens <= x->graph_tokens) {
        pad_body(x, &s.size);
        s.body = true;
    }
    if (x->options.graphs && b.n_rows > 0)
        rows = cuda_step_bucket(b.n_rows, x->config.limits.max_rows);
    if (rows > 0) {
        s.size.rows = rows;
        s.tail = true;
    }
    set_items(x, &b, &s);
    return s;
}

/* The batch as the device sees it: the sizes are the shape's, the arrays lie in the device's block.
 */
static vt_batch device_batch(const cuda_executor *x, const vt_size *n, const step_layout *l)
{
    const char *base = x->step_block;
    vt_batch b = {.n_tokens = n->tokens,
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
                  .row_token = (const void *)(base + l->row_token),
                  .state_from = (const void *)(base + l->state_from),
                  .state_to = (const void *)(base + l->state_to),
                  .state_behind = states_behind(x) ? (const void *)(base + l->state_behind) : NULL,
                  .hidden = base + l->hidden,
                  .second = x->pairs ? (const void *)(base + l->second) : NULL};
    if (x->kv.n_windows > 0) {
        b.window_slot = (const void *)(base + l->window_slot);
        b.window_page_ids = b.page_ids; /* its starts lie behind those of the pages */
        b.window_page_start = (const void *)(base + l->window_page_start);
    }
    return b;
}

void cuda_step_bind(cuda_executor *x, const step_shape *s)
{
    x->bound = s;
    x->bound_layout = cuda_step_layout(x, s);
    vt_batch batch = device_batch(x, &s->size, &x->bound_layout);
    vt_program_bind(x->prog, &batch, &s->size, x->prog->rows);
}

/* ---- filling ---- */

/* Copies n integers and fills up to `padded` with zeros. */
static void copy_ints(char *to, const int32_t *from, int64_t n, int64_t padded)
{
    if (n > 0)
        memcpy(to, from, (size_t)n * 4);
    memset(to + n * 4, 0, (size_t)(padded - n) * 4);
}

/* The same with `by` added to each of the n integers: on the device the pages come after the
 * padding page (cuda_kv.c), so page ids are shifted by one page and slots by one page's tokens. */
static void copy_shifted(char *to, const int32_t *from, int64_t n, int64_t padded, int32_t by)
{
    int32_t *out = (int32_t *)to;
    for (int64_t i = 0; i < n; i++)
        out[i] = from[i] + by;
    memset(out + n, 0, (size_t)(padded - n) * 4);
}

/* Fills a decode bucket up with sequences of one token each, which lies in the padding page. */
static void pad_sequences(const vt_batch *b, const vt_size *n, const step_layout *l, char *out)
{
    int32_t *q_start = (int32_t *)(out + l->q_start), *kv_len = (int32_t *)(out + l->kv_len),
            *page_start = (int32_t *)(out + l->page_start),
            *page_ids = (int32_t *)(out + l->page_ids),
            *row_token = (int32_t *)(out + l->row_token);
    for (int32_t i = 0; i < n->pad_seqs; i++) {
        int32_t q = b->n_seqs + i;
        q_start[q + 1] = b->n_tokens + i + 1;
        kv_len[q] = 1;
        page_ids[b->n_pages + i] = 0;
        page_start[q + 1] = b->n_pages + i + 1;
        row_token[b->n_rows + i] = b->n_tokens + i;
    }
}

/* Fills the arrays of the window pages, whose ids come behind all others. A page that the window of
 * all tokens has passed becomes the padding page. */
static void fill_windows(const cuda_executor *x, const vt_batch *b, const vt_size *n,
                         const step_layout *l, char *out)
{
    int32_t size = x->config.limits.page_size, seqs = b->n_seqs + n->pad_seqs,
            all = b->n_pages + n->pad_seqs, window = x->window;
    const int32_t *page_start = (const int32_t *)(out + l->page_start);
    int32_t *start = (int32_t *)(out + l->window_page_start),
            *ids = (int32_t *)(out + l->page_ids) + all;
    copy_shifted(out + l->window_slot, b->window_slot, b->n_tokens, n->tokens, size);
    for (int32_t s = 0; s <= seqs; s++)
        start[s] = all + page_start[s];
    memset(ids, 0, (size_t)all * sizeof *ids);
    for (int32_t s = 0; s < b->n_seqs; s++) {
        int32_t hidden = b->position[b->q_start[s]] - window + 1;
        for (int32_t i = hidden > 0 ? hidden / size : 0; i < page_start[s + 1] - page_start[s]; i++)
            ids[page_start[s] + i] = b->window_page_ids[page_start[s] + i] + x->kv.first_page;
    }
}

/* A plan that needs more items than the shape has room for would lose the rest. */
static vt_status check_items(const vt_host_plan *plan, uint64_t step, int32_t n, int32_t room,
                             vt_err *err)
{
    if (n <= room)
        return VT_OK;
    return vt_fail(err, VT_ERR_DEVICE,
                   "step %llu: the plan '%s' needs %d items, but there is room for %d: this is an "
                   "error of the program",
                   (unsigned long long)step, plan->name, n, room);
}

/* Fills the plans, except those with side data: cuda_step_upload_side has filled them. */
static vt_status fill_plans(cuda_executor *x, const vt_step *step, const step_shape *s,
                            const step_layout *l, char *out, vt_err *err)
{
    const vt_batch drafts = with_drafts(x, &step->batch);
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        if (!s->used[i] || p->plan->most_side_bytes)
            continue;
        const vt_batch b = batch_of_plan(x, p, &drafts);
        int32_t n = p->plan->fill(p->args, &x->prog->target, &s->size, &b, s->items[i],
                                  out + l->plan[i], NULL);
        TRY(check_items(p->plan, step->id, n, s->items[i], err));
        if (p->plan->shared)
            x->shared_items += (uint64_t)p->plan->shared(out + l->plan[i], n);
    }
    return VT_OK;
}

vt_status cuda_step_fill(cuda_executor *x, const vt_step *step, const step_shape *s, char *out,
                         size_t *end, vt_err *err)
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
    if (x->kv.n_states > 0) {
        copy_ints(out + l.state_from, b->state_from, b->n_seqs, b->n_seqs);
        copy_ints(out + l.state_to, b->state_to, b->n_seqs, b->n_seqs);
    }
    size_t before = before_bytes(x);
    if (before > 0) {
        memcpy(out + l.hidden, b->hidden, (size_t)b->n_tokens * before);
        memset(out + l.hidden + (size_t)b->n_tokens * before, 0,
               (size_t)(n->tokens - b->n_tokens) * before);
    }
    if (states_behind(x)) {
        memset(out + l.state_behind, 0xff, (size_t)n->tokens * 4); /* -1: none */
        copy_ints(out + l.state_behind, b->state_behind, b->state_behind ? b->n_tokens : 0,
                  b->state_behind ? b->n_tokens : 0);
    }
    if (x->pairs)
        copy_ints(out + l.second, b->second, b->second ? b->n_seqs : 0, b->n_seqs);
    copy_shifted(out + l.page_ids, b->page_ids, b->n_pages, b->n_pages, x->kv.first_page);
    TRY(fill_plans(x, step, s, &l, out, err));
    pad_sequences(b, n, &l, out);
    if (x->kv.n_windows > 0)
        fill_windows(x, b, n, &l, out);
    size_t ids = (size_t)(b->n_pages + n->pad_seqs) * (x->kv.n_windows > 0 ? 2 : 1);
    *end = l.page_ids + ids * sizeof(int32_t);
    return VT_OK;
}

/* ---- side data ---- */

/* Gives the slot pinned memory for at least `bytes` bytes of side data of the rows, or of the
 * layers. Each has its own, because the layers' may still be read when the rows' is filled. */
static vt_status grow_pinned(cuda_executor *x, result_slot *slot, bool rows, size_t bytes,
                             vt_err *err)
{
    void *p;
    if (bytes <= slot->side_bytes[rows])
        return VT_OK;
    TRY(vt_cuda_pinned(x->cuda, 2 * bytes, &p, err));
    vt_cuda_pinned_free(x->cuda, slot->side[rows]);
    slot->side[rows] = p;
    slot->side_bytes[rows] = 2 * bytes;
    return VT_OK;
}

/* Returns true if plan i has side data and is used by the calls for rows, or by the others. */
static bool has_side(const cuda_executor *x, const step_shape *s, int32_t i, bool rows)
{
    return s->used[i] && x->side_part[i] >= 0 && (x->prog->plan[i].when == VT_WHEN_ROWS) == rows;
}

/* Copies one plan's side data into its part of the device's range. */
static vt_status upload_one(cuda_executor *x, const char *from, int32_t plan, size_t bytes,
                            vt_err *err)
{
    char *to = (char *)x->side.base + (size_t)x->side_part[plan] * x->side.stride;
    if (bytes == 0)
        return VT_OK;
    TRY(cuda_range_grow(x->cuda, &x->side, bytes, err));
    TRY(vt_observe(&x->observers, VT_MARK_IN, (int64_t)bytes, err));
    return vt_cuda_check(
        x->cuda, x->cuda->driver.copy_to_device(cuda_address(to), from, bytes, x->lane.stream),
        x->prog->plan[plan].plan->name, err);
}

/*   1. Ask every plan with side data how many bytes this step brings, and check the limit.
 *   2. Make room for their sum in the slot's pinned memory.
 *   3. Fill each plan together with its side data, and copy the side data to the device. */
vt_status cuda_step_upload_side(cuda_executor *x, const vt_step *step, const step_shape *s,
                                bool rows, result_slot *slot, vt_err *err)
{
    step_layout l = cuda_step_layout(x, s);
    size_t bytes[VT_MAX_PLANS] = {0}, sum = 0, at = 0;
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        if (!has_side(x, s, i, rows))
            continue;
        const vt_batch b = batch_of_plan(x, p, &step->batch);
        bytes[i] = p->plan->side_bytes(p->args, &b);
        if (bytes[i] > p->plan->most_side_bytes(p->args, &x->prog->target))
            return vt_fail(err, VT_ERR_USAGE,
                           "step %llu brings %zu bytes of %s, expected at most %zu",
                           (unsigned long long)step->id, bytes[i], p->plan->name,
                           p->plan->most_side_bytes(p->args, &x->prog->target));
        sum += vt_round_up(bytes[i], 16);
    }
    TRY(grow_pinned(x, slot, rows, sum, err));
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        if (!has_side(x, s, i, rows))
            continue;
        const vt_batch b = batch_of_plan(x, p, &step->batch);
        int32_t n = p->plan->fill(p->args, &x->prog->target, &s->size, &b, s->items[i],
                                  slot->step_block + l.plan[i], slot->side[rows] + at);
        TRY(check_items(p->plan, step->id, n, s->items[i], err));
        TRY(upload_one(x, slot->side[rows] + at, i, bytes[i], err));
        at += vt_round_up(bytes[i], 16);
    }
    return VT_OK;
}

vt_status cuda_step_upload_late(cuda_executor *x, const step_shape *s, const result_slot *slot,
                                vt_err *err)
{
    step_layout l = cuda_step_layout(x, s);
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        if (!has_side(x, s, i, true))
            continue;
        size_t bytes = plan_bytes(x, i, &s->size, s->items[i]);
        TRY(vt_cuda_check(x->cuda,
                          x->cuda->driver.copy_to_device(cuda_address(x->step_block) + l.plan[i],
                                                         slot->step_block + l.plan[i], bytes,
                                                         x->lane.stream),
                          "uploading sampling rows", err));
        TRY(vt_observe(&x->observers, VT_MARK_IN, (int64_t)bytes, err));
    }
    return VT_OK;
}
