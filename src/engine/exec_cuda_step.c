/* A step's block: one copy from pinned memory to one device address.
 *
 * Its parts have fixed offsets for a shape (tokens, sequences, rows), so a captured graph finds
 * them again; page ids come last, because their number changes every step:
 *
 *   token | position | seq_of | slot | q_start | kv_len | page_start | row_token | plan | sample
 *   rows | page ids
 *
 * A decode step of n sequences is padded to the next bucket: the extra rows have token 0, one KV
 * token in a page that belongs to nobody, greedy sampling and no pool slot. Their results are not
 * read. */
#include <string.h>

#include "base/err.h"
#include "engine/exec_cuda_inside.h"

static size_t take(size_t *at, int64_t n, size_t size)
{
    size_t here = *at;
    *at = vt_round_up(here + (size_t)n * size, 16);
    return here;
}

step_layout cuda_step_layout(const step_shape *s)
{
    step_layout l;
    size_t at = 0;
    l.token = take(&at, s->tokens, 4);
    l.position = take(&at, s->tokens, 4);
    l.seq_of = take(&at, s->tokens, 4);
    l.slot = take(&at, s->tokens, 4);
    l.q_start = take(&at, s->seqs + 1, 4);
    l.kv_len = take(&at, s->seqs, 4);
    l.page_start = take(&at, s->seqs + 1, 4);
    l.row_token = take(&at, s->rows, 4);
    l.decode_plan = take(&at, (int64_t)s->decode_items * DECODE_ITEM_INTS, 4);
    l.prefill_plan = take(&at, (int64_t)s->prefill_items * PREFILL_ITEM_INTS, 4);
    l.rows = take(&at, s->rows, sizeof(sample_cuda_row));
    l.page_ids = at;
    return l;
}

step_shape cuda_step_bucket(const cuda_executor *x, int32_t seqs)
{
    return (step_shape){
        .tokens = seqs,
        .seqs = seqs,
        .rows = seqs,
        .n_decode = seqs,
        .decode_items = attention_decode_capacity(&x->plan, seqs, x->config.limits.max_context)};
}

step_shape cuda_step_shape(const cuda_executor *x, const vt_batch *b)
{
    step_shape s = {
        .tokens = b->n_tokens, .seqs = b->n_seqs, .rows = b->n_rows, .n_decode = b->n_decode};
    if (b->n_decode > 0)
        s.decode_items = attention_decode_capacity(&x->plan, b->n_decode,
                                                   x->config.limits.max_context);
    if (b->n_seqs > b->n_decode)
        s.prefill_items = attention_prefill_capacity(&x->plan, b->n_seqs, b->n_tokens);
    return s;
}

/* The batch with the shape's sizes and the device's addresses. */
static vt_batch device_batch(const cuda_executor *x, const step_shape *s, const step_layout *l)
{
    const char *base = x->step_block;
    return (vt_batch){.n_tokens = s->tokens,
                      .n_seqs = s->seqs,
                      .n_decode = s->n_decode,
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
    step_layout l = cuda_step_layout(s);
    vt_batch batch = device_batch(x, s, &l);
    vt_program_bind(x->prog, &batch, NULL);
    x->lane.decode_items = s->decode_items;
    x->lane.prefill_items = s->prefill_items;
    x->lane.attention_plan = (const void *)((char *)x->step_block + l.decode_plan);
    x->lane.prefill_plan = (const void *)((char *)x->step_block + l.prefill_plan);
    x->lane.sample_rows = (const void *)((char *)x->step_block + l.rows);
}

static void copy_ints(char *to, const int32_t *from, int64_t n, int64_t padded, int32_t pad)
{
    int32_t *out = (int32_t *)to;
    memcpy(out, from, (size_t)n * 4);
    for (int64_t i = n; i < padded; i++)
        out[i] = pad;
}

size_t cuda_step_fill(cuda_executor *x, const vt_step *step, const step_shape *s, char *out)
{
    const vt_batch *b = &step->batch;
    step_layout l = cuda_step_layout(s);
    int32_t page = x->config.limits.page_size, nobody = x->config.n_pages, used[2];
    int32_t extra = s->seqs - b->n_seqs; /* padding sequences: one token, one page each */
    copy_ints(out + l.token, b->token, b->n_tokens, s->tokens, 0);
    copy_ints(out + l.position, b->position, b->n_tokens, s->tokens, 0);
    copy_ints(out + l.seq_of, b->seq_of, b->n_tokens, s->tokens, 0);
    copy_ints(out + l.slot, b->slot, b->n_tokens, s->tokens, nobody * page);
    copy_ints(out + l.kv_len, b->kv_len, b->n_seqs, s->seqs, 1);
    copy_ints(out + l.row_token, b->row_token, b->n_rows, s->rows, 0);
    int32_t *q_start = (int32_t *)(out + l.q_start), *page_start = (int32_t *)(out + l.page_start);
    copy_ints((char *)q_start, b->q_start, b->n_seqs + 1, b->n_seqs + 1, 0);
    copy_ints((char *)page_start, b->page_start, b->n_seqs + 1, b->n_seqs + 1, 0);
    int32_t *page_ids = (int32_t *)(out + l.page_ids);
    memcpy(page_ids, b->page_ids, (size_t)b->n_pages * 4);
    for (int32_t i = 0; i < extra; i++) {
        q_start[b->n_seqs + 1 + i] = b->n_tokens + i + 1;
        page_start[b->n_seqs + 1 + i] = b->n_pages + i + 1;
        page_ids[b->n_pages + i] = nobody;
        ((int32_t *)(out + l.row_token))[b->n_rows + i] = b->n_tokens + i;
    }
    vt_batch padded = *b;
    padded.n_seqs = s->seqs;
    padded.n_decode = s->n_decode;
    padded.q_start = q_start;
    padded.kv_len = (const int32_t *)(out + l.kv_len);
    int32_t *plan = (int32_t *)(out + l.decode_plan);
    attention_cuda_plan(&x->plan, &padded, plan, s->decode_items, (int32_t *)(out + l.prefill_plan),
                        s->prefill_items, &used[0], &used[1]);
    return l.page_ids + (size_t)(b->n_pages + extra) * 4;
}

vt_status cuda_step_fill_rows(cuda_executor *x, const vt_step *step, const step_shape *s,
                              result_slot *slot, vt_err *err)
{
    step_layout l = cuda_step_layout(s);
    int32_t n = step->batch.n_rows;
    sample_cuda_row *to = (sample_cuda_row *)(slot->step_block + l.rows);
    int64_t n_contexts, n_biases;
    sample_cuda_counts(step->rows, n, &n_contexts, &n_biases);
    if (n_contexts > x->max_contexts || n_biases > x->max_biases)
        return vt_fail(err, VT_ERR_MEMORY,
                       "step %llu: %lld tokens of context and %lld biases are beyond %lld and %lld",
                       (unsigned long long)step->id, (long long)n_contexts, (long long)n_biases,
                       (long long)x->max_contexts, (long long)x->max_biases);
    size_t contexts_bytes = vt_round_up((size_t)n_contexts * 4, 16),
           bytes = contexts_bytes + (size_t)n_biases * 8;
    if (bytes > slot->extra_bytes) {
        void *p;
        TRY(vt_cuda_pinned(x->cuda, 2 * bytes, &p, err));
        vt_cuda_pinned_free(x->cuda, slot->extra);
        slot->extra = p;
        slot->extra_bytes = 2 * bytes;
    }
    sample_cuda_pack(step->rows, n, to, (int32_t *)slot->extra,
                     (vt_logit_bias *)(slot->extra + contexts_bytes));
    for (int32_t i = n; i < s->rows; i++)
        to[i] = sample_cuda_padding();
    const cuda_driver *d = &x->cuda->driver;
    cuda_spans_moved(x, VT_MOVE_TO_DEVICE, (size_t)n_contexts * 4 + (size_t)n_biases * 8);
    if (n_contexts > 0)
        TRY(vt_cuda_check(x->cuda,
                          d->copy_to_device(cuda_address(x->contexts), slot->extra,
                                            (size_t)n_contexts * 4, x->lane.stream),
                          "uploading contexts", err));
    if (n_biases > 0)
        TRY(vt_cuda_check(x->cuda,
                          d->copy_to_device(cuda_address(x->biases), slot->extra + contexts_bytes,
                                            (size_t)n_biases * 8, x->lane.stream),
                          "uploading biases", err));
    return VT_OK;
}
