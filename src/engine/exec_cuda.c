/* The CUDA executor: steps on one stream, decode steps as graphs.
 *
 *   launch   host: arrays, plan and sampling rows of the step -> pinned block -> one copy to the
 *            device device: page copies | forward + sample (graph of the bucket, or call by call) |
 *            results to pinned memory
 *   wait     the event behind the results of the oldest step
 *
 * A step's block lies at one device address; the stream orders its reuse, so two steps may be in
 * flight with one block on the device and four on the host. Its parts have fixed offsets for a
 * shape (tokens, sequences, rows), so a captured graph finds them again; page ids come last,
 * because their number changes every step:
 *
 *   token | position | seq_of | slot | q_start | kv_len | page_start | row_token | plan | sample
 *   rows | page ids
 *
 * A decode step of n sequences is padded to the next bucket: the extra rows have token 0, one KV
 * token in a page that belongs to nobody, greedy sampling and no pool slot. Their results are not
 * read.
 *
 * Kernels are named by a dry run (lane.collect) over every bucket and a ladder of prefill sizes,
 * compiled together, then captured. Forward and sampling are one graph: two would cost a launch gap
 * a step, and masks that arrive late do not exist yet. Where rope and kv_store follow each other
 * they are one launch (rope_cuda.h). */
#include "engine/exec_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/program.h"
#include "engine/weights_cuda.h"
#include "ops/attention/attention_cuda.h"
#include "ops/embed/embed.h"
#include "ops/moe/moe_cuda.h"
#include "ops/rope/rope_cuda.h"
#include "ops/sample/sample_cuda.h"

enum {
    MAX_IN_FLIGHT = 2,
    SLOTS = 4,
    MAX_BUCKETS = 20,
    WORKSPACE_BYTES = 64 << 20,
    MAX_COPIES = 1024
};

static const int32_t kBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256};

/* Sizes that fix where everything lies in a step's block. */
typedef struct step_shape {
    int32_t tokens, seqs, rows, n_decode, decode_items, prefill_items;
} step_shape;

typedef struct step_layout {
    size_t token, position, seq_of, slot, q_start, kv_len, page_start, row_token, decode_plan,
        prefill_plan, rows, page_ids; /* byte offsets; page ids are last */
} step_layout;

typedef struct bucket {
    int32_t seqs;
    cuda_graph graph;
} bucket;

typedef struct result_slot {
    char *step_block; /* pinned: the step's arrays */
    char *extra; /* pinned: contexts and biases; grown when a step needs more than any before */
    size_t extra_bytes;
    int32_t *token, *top_id;
    float *logprob, *top_logprob;
    cu_event begin, end;
    vt_step_result view;
    int32_t n_rows;
} result_slot;

typedef struct cuda_executor {
    vt_executor base;
    const vt_model *model;
    vt_executor_config config;
    vt_cuda_options options;
    vt_cuda *cuda;
    vt_cuda_weights *weights;
    cuda_range kv_range;
    vt_kv_cache kv;
    vt_tensor *kv_tensors;
    vt_program *prog;
    void *activations, *workspace, *tickets, *step_block, *contexts, *biases, *token_pool, *copies;
    size_t step_bytes;
    int64_t max_contexts, max_biases;
    vt_cuda_lane lane;
    attention_plan_config plan;
    bucket bucket[MAX_BUCKETS];
    int32_t n_buckets;
    result_slot slot[SLOTS];
    uint64_t launched, waited;
    vt_cuda_startup startup;
} cuda_executor;

static cu_ptr address(const void *p) { return (cu_ptr)(uintptr_t)p; }

/* ---- the step's block ---- */

static size_t take(size_t *at, int64_t n, size_t size)
{
    size_t here = *at;
    *at = vt_round_up(here + (size_t)n * size, 16);
    return here;
}

static step_layout layout_of(const step_shape *s)
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

static step_shape shape_of_bucket(const cuda_executor *x, int32_t seqs)
{
    return (step_shape){
        .tokens = seqs,
        .seqs = seqs,
        .rows = seqs,
        .n_decode = seqs,
        .decode_items = attention_decode_capacity(&x->plan, seqs, x->config.limits.max_context)};
}

static step_shape shape_of_step(const cuda_executor *x, const vt_batch *b)
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

static void bind(cuda_executor *x, const step_shape *s)
{
    step_layout l = layout_of(s);
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

/* Fills the pinned block for the step, padded to the shape; returns the bytes to copy. */
static size_t fill_block(cuda_executor *x, const vt_step *step, const step_shape *s, char *out)
{
    const vt_batch *b = &step->batch;
    step_layout l = layout_of(s);
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

/* Sampling rows into the block; contexts and biases, which few steps have, by copies of their
 * own. */
static vt_status fill_rows(cuda_executor *x, const vt_step *step, const step_shape *s,
                           result_slot *slot, vt_err *err)
{
    step_layout l = layout_of(s);
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
    if (n_contexts > 0)
        TRY(vt_cuda_check(x->cuda,
                          d->copy_to_device(address(x->contexts), slot->extra,
                                            (size_t)n_contexts * 4, x->lane.stream),
                          "uploading contexts", err));
    if (n_biases > 0)
        TRY(vt_cuda_check(x->cuda,
                          d->copy_to_device(address(x->biases), slot->extra + contexts_bytes,
                                            (size_t)n_biases * 8, x->lane.stream),
                          "uploading biases", err));
    return VT_OK;
}

/* ---- running the program ---- */

static vt_status lane_status(cuda_executor *x, vt_err *err)
{
    if (x->lane.err.status != VT_OK && err)
        *err = x->lane.err;
    return x->lane.err.status;
}

/* Launches every active call of the bound program; rope and the store behind it as one. */
static vt_status run_calls(cuda_executor *x, vt_err *err)
{
    vt_program *p = x->prog;
    vt_lane lane = {.device = VT_DEVICE_CUDA, .cuda = &x->lane};
    x->lane.err = (vt_err){0};
    for (int32_t i = 0; i < p->n_calls; i++) {
        const vt_call *c = &p->call[i], *next = c + 1;
        if (!vt_call_active(p, c))
            continue;
        bool fuse = c->op == &rope_op && i + 1 < p->n_calls && next->op == &kv_store_op &&
                    rope_store_cuda_fits(c->args, next->args);
        vt_status status = fuse ? rope_store_cuda_run(c->args, next->args, &lane)
                                : c->impl->run(c->args, &lane);
        if (status != VT_OK)
            return lane_status(x, err);
        i += fuse;
    }
    return VT_OK;
}

typedef struct page_copy_params {
    void *pools;
    const void *copies;
    uint64_t pool_stride;
} page_copy_params;

static uint64_t pool_bytes(const cuda_executor *x)
{
    return (uint64_t)(x->config.n_pages + 1) *
           (uint64_t)vt_kv_page_bytes(1, x->kv.kv_heads, x->kv.page_size, x->kv.head_dim, VT_BF16) /
           2;
}

static vt_status launch_copies(cuda_executor *x, int32_t n, vt_err *err)
{
    page_copy_params p = {x->kv_range.base, x->copies, pool_bytes(x)};
    x->lane.err = (vt_err){0};
    vt_cuda_launch(
        &x->lane,
        &(cuda_launch){
            .spec = JIT_SPEC("page_copy.cu", "page_copy", {"kv_heads", x->kv.kv_heads},
                             {"head_dim", x->kv.head_dim}, {"page", x->kv.page_size}),
            .grid = {(uint32_t)n, (uint32_t)(2 * x->kv.n_layers), (uint32_t)x->kv.kv_heads},
            .threads = 128},
        &p, sizeof p);
    return lane_status(x, err);
}

static vt_status copy_pages(cuda_executor *x, const vt_step *step, vt_err *err)
{
    _Static_assert(sizeof(vt_page_copy) == 12, "the kernel's PageCopy");
    if (step->n_copies == 0)
        return VT_OK;
    if (step->n_copies > MAX_COPIES)
        return vt_fail(err, VT_ERR_MEMORY, "step %llu copies %d pages; %d is the most",
                       (unsigned long long)step->id, step->n_copies, MAX_COPIES);
    /* pageable memory: the driver takes its copy before it returns */
    TRY(vt_cuda_check(x->cuda,
                      x->cuda->driver.copy_to_device(address(x->copies), step->copies,
                                                     (size_t)step->n_copies * sizeof *step->copies,
                                                     x->lane.stream),
                      "uploading page copies", err));
    return launch_copies(x, step->n_copies, err);
}

/* The bucket that serves this step as a graph; NULL: call by call. */
static const bucket *bucket_of(const cuda_executor *x, const vt_batch *b)
{
    if (b->n_tokens != b->n_seqs || b->n_decode != b->n_seqs || b->n_rows != b->n_seqs)
        return NULL;
    for (int32_t i = 0; i < x->n_buckets; i++)
        if (x->bucket[i].seqs >= b->n_seqs)
            return x->bucket[i].graph.exec ? &x->bucket[i] : NULL;
    return NULL;
}

static vt_status fetch_results(cuda_executor *x, const vt_step *step, result_slot *slot,
                               vt_err *err)
{
    const cuda_driver *d = &x->cuda->driver;
    size_t n = (size_t)step->batch.n_rows;
    bool logprobs = false, tops = false;
    for (size_t i = 0; i < n; i++) {
        logprobs = logprobs || step->rows[i].n_top >= 0 || step->rows[i].target >= 0;
        tops = tops || step->rows[i].n_top > 0;
    }
    const struct {
        void *to;
        const vt_tensor *from;
        size_t each;
        bool wanted;
    } part[] = {{slot->token, x->prog->token, 4, true},
                {slot->logprob, x->prog->logprob, 4, logprobs},
                {slot->top_id, x->prog->top_id, 4 * VT_MAX_TOP_LOGPROBS, tops},
                {slot->top_logprob, x->prog->top_logprob, 4 * VT_MAX_TOP_LOGPROBS, tops}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].wanted && n > 0)
            TRY(vt_cuda_check(x->cuda,
                              d->copy_to_host(part[i].to, address(part[i].from->data),
                                              n * part[i].each, x->lane.stream),
                              "fetching results", err));
    if (!logprobs)
        memset(slot->logprob, 0, n * 4);
    return VT_OK;
}

static vt_status run_step(cuda_executor *x, const vt_step *step, result_slot *slot, vt_err *err)
{
    const cuda_driver *d = &x->cuda->driver;
    TRY(vt_cuda_check(x->cuda, d->event_record(slot->begin, x->lane.stream), "recording an event",
                      err));
    TRY(copy_pages(x, step, err));
    if (step->batch.n_tokens > 0) {
        const bucket *graph = bucket_of(x, &step->batch);
        step_shape shape = graph ? shape_of_bucket(x, graph->seqs) : shape_of_step(x, &step->batch);
        size_t bytes = fill_block(x, step, &shape, slot->step_block);
        TRY(fill_rows(x, step, &shape, slot, err));
        TRY(vt_cuda_check(
            x->cuda,
            d->copy_to_device(address(x->step_block), slot->step_block, bytes, x->lane.stream),
            "uploading a step", err));
        if (graph) {
            TRY(cuda_graph_launch(&x->lane, &graph->graph, err));
        } else {
            bind(x, &shape);
            TRY(run_calls(x, err));
        }
        TRY(fetch_results(x, step, slot, err));
    }
    slot->n_rows = step->batch.n_rows;
    return vt_cuda_check(x->cuda, d->event_record(slot->end, x->lane.stream), "recording an event",
                         err);
}

static vt_status check_step(const cuda_executor *x, const vt_step *s, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    if (s->batch.n_tokens > lim->max_tokens || s->batch.n_seqs > lim->max_seqs ||
        s->batch.n_rows > lim->max_rows)
        return vt_fail(
            err, VT_ERR_USAGE,
            "step %llu: %d tokens, %d sequences, %d rows are beyond the limits %d, %d, %d",
            (unsigned long long)s->id, s->batch.n_tokens, s->batch.n_seqs, s->batch.n_rows,
            lim->max_tokens, lim->max_seqs, lim->max_rows);
    return VT_OK;
}

static vt_status cuda_exec_launch(vt_executor *base, const vt_step *step, vt_err *err)
{
    cuda_executor *x = (cuda_executor *)base;
    TRY(check_step(x, step, err));
    if (x->launched - x->waited >= MAX_IN_FLIGHT)
        return vt_fail(err, VT_ERR_USAGE, "step %llu: %d steps are in flight already",
                       (unsigned long long)step->id, MAX_IN_FLIGHT);
    TRY(vt_cuda_enter(x->cuda, err));
    result_slot *slot = &x->slot[x->launched % SLOTS];
    slot->view.id = step->id;
    TRY(run_step(x, step, slot, err));
    x->launched++;
    return VT_OK;
}

static vt_status cuda_exec_wait(vt_executor *base, vt_step_result *out, vt_err *err)
{
    cuda_executor *x = (cuda_executor *)base;
    if (x->waited == x->launched)
        return vt_fail(err, VT_ERR_USAGE, "no step is in flight");
    result_slot *slot = &x->slot[x->waited % SLOTS];
    float ms = 0;
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_sync(slot->end), "waiting for a step", err));
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_elapsed(&ms, slot->begin, slot->end),
                      "timing a step", err));
    int64_t now = vt_now_ns();
    slot->view = (vt_step_result){.id = slot->view.id,
                                  .token = slot->token,
                                  .logprob = slot->logprob,
                                  .top_id = slot->top_id,
                                  .top_logprob = slot->top_logprob,
                                  .begin_ns = now - (int64_t)((double)ms * 1e6),
                                  .end_ns = now};
    *out = slot->view;
    x->waited++;
    return VT_OK;
}

static const vt_program *cuda_exec_program(const vt_executor *base)
{
    return ((const cuda_executor *)base)->prog;
}

/* ---- making one ---- */

static void cuda_exec_free(vt_executor *base)
{
    cuda_executor *x = (cuda_executor *)base;
    if (!x)
        return;
    vt_cuda *c = x->cuda;
    if (c && c->context) {
        vt_cuda_enter(c, NULL);
        if (x->lane.stream)
            c->driver.stream_sync(x->lane.stream);
        for (int32_t i = 0; i < x->n_buckets; i++)
            cuda_graph_release(c, &x->bucket[i].graph);
        for (int i = 0; i < SLOTS; i++) {
            result_slot *s = &x->slot[i];
            void *pinned[] = {s->step_block, s->extra,   s->token,
                              s->top_id,     s->logprob, s->top_logprob};
            for (size_t k = 0; k < sizeof pinned / sizeof *pinned; k++)
                vt_cuda_pinned_free(c, pinned[k]);
            if (s->begin)
                c->driver.event_destroy(s->begin);
            if (s->end)
                c->driver.event_destroy(s->end);
        }
        void *blocks[] = {x->activations, x->workspace, x->tickets,    x->step_block,
                          x->contexts,    x->biases,    x->token_pool, x->copies};
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
            vt_cuda_free(c, blocks[k]);
        if (x->kv_range.base)
            cuda_range_release(c, &x->kv_range);
        if (x->lane.stream)
            c->driver.stream_destroy(x->lane.stream);
    }
    vt_program_free(x->prog);
    vt_cuda_weights_free(c && c->context ? c : NULL, x->weights);
    vt_cuda_close(c);
    free(x->kv_tensors);
    free(x);
}

/* One more page than the engine knows: padding rows store their K and V there. */
static vt_status make_kv(cuda_executor *x, vt_err *err)
{
    const vt_arch *a = &x->model->arch;
    x->kv = (vt_kv_cache){.n_layers = a->n_layers,
                          .n_pages = x->config.n_pages,
                          .page_size = x->config.limits.page_size,
                          .kv_heads = a->n_kv_heads,
                          .head_dim = a->head_dim,
                          .dtype = VT_BF16,
                          .device = VT_DEVICE_CUDA};
    x->kv_tensors = vt_calloc((size_t)a->n_layers * 2, sizeof *x->kv_tensors);
    if (!x->kv_tensors)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the KV cache's description");
    x->kv.k = x->kv_tensors;
    x->kv.v = x->kv_tensors + a->n_layers;
    size_t each = pool_bytes(x);
    x->kv.bytes = each * 2 * (size_t)a->n_layers;
    if (x->cuda->context) {
        TRY(cuda_range_init(x->cuda, x->kv.bytes, &x->kv_range, err));
        TRY(cuda_range_grow(x->cuda, &x->kv_range, x->kv.bytes, err));
    }
    for (int32_t i = 0; i < 2 * a->n_layers; i++) {
        /* pools in memory: L0 k, L0 v, L1 k, ...; tensors: all k, then all v */
        int32_t at = i < a->n_layers ? 2 * i : 2 * (i - a->n_layers) + 1;
        x->kv_tensors[i] = (vt_tensor){
            .data = x->kv_range.base ? (char *)x->kv_range.base + (size_t)at * each : NULL,
            .dtype = VT_BF16,
            .rank = 4,
            .row_stride = a->head_dim,
            .dim = {x->config.n_pages + 1, a->n_kv_heads, x->kv.page_size, a->head_dim}};
    }
    return VT_OK;
}

static vt_status make_slots(cuda_executor *x, vt_err *err)
{
    size_t rows = (size_t)x->config.limits.max_rows;
    for (int i = 0; i < SLOTS; i++) {
        result_slot *s = &x->slot[i];
        void *p;
        TRY(vt_cuda_pinned(x->cuda, x->step_bytes, &p, err));
        s->step_block = p;
        TRY(vt_cuda_pinned(x->cuda, rows * 4, &p, err));
        s->token = p;
        TRY(vt_cuda_pinned(x->cuda, rows * 4, &p, err));
        s->logprob = p;
        TRY(vt_cuda_pinned(x->cuda, rows * 4 * VT_MAX_TOP_LOGPROBS, &p, err));
        s->top_id = p;
        TRY(vt_cuda_pinned(x->cuda, rows * 4 * VT_MAX_TOP_LOGPROBS, &p, err));
        s->top_logprob = p;
        TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&s->begin, CU_EVENT_DEFAULT),
                          "making an event", err));
        TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&s->end, CU_EVENT_DEFAULT),
                          "making an event", err));
    }
    return VT_OK;
}

/* Bytes of the largest step: every limit at once, and a page list for every sequence. */
static size_t largest_block(const cuda_executor *x)
{
    const vt_limits *lim = &x->config.limits;
    step_shape s = {
        .tokens = lim->max_tokens,
        .seqs = lim->max_seqs + 1,
        .rows = lim->max_rows,
        .n_decode = lim->max_seqs,
        .decode_items = attention_decode_capacity(&x->plan, lim->max_seqs, lim->max_context),
        .prefill_items = attention_prefill_capacity(&x->plan, lim->max_seqs, lim->max_tokens)};
    int64_t pages = (int64_t)lim->max_seqs * vt_ceil_div(lim->max_context, lim->page_size) +
                    lim->max_seqs;
    step_shape widest = shape_of_bucket(x, kBuckets[sizeof kBuckets / sizeof *kBuckets - 1]);
    size_t a = layout_of(&s).page_ids, b = layout_of(&widest).page_ids;
    return (a > b ? a : b) + (size_t)pages * 4 + 4096;
}

static vt_status make_memory(cuda_executor *x, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    vt_cuda *c = x->cuda;
    x->step_bytes = largest_block(x);
    x->max_contexts = (int64_t)lim->max_seqs * lim->max_context;
    x->max_biases = (int64_t)lim->max_rows * 1024;
    size_t decode = attention_decode_workspace(
        attention_decode_capacity(&x->plan, lim->max_seqs, lim->max_context),
        x->model->arch.n_heads, x->model->arch.head_dim);
    size_t counts = c->level >= 90 ? 0 : (size_t)lim->max_rows * (size_t)x->model->arch.vocab * 3;
    const vt_arch *a = &x->model->arch;
    size_t moe = a->n_experts ? moe_cuda_workspace(lim->max_tokens, a->n_experts_used, a->n_experts,
                                                   a->hidden, a->expert_ffn)
                              : 0;
    x->lane.workspace_bytes = WORKSPACE_BYTES;
    x->lane.workspace_bytes = moe > x->lane.workspace_bytes ? moe : x->lane.workspace_bytes;
    x->lane.workspace_bytes = decode > x->lane.workspace_bytes ? decode : x->lane.workspace_bytes;
    x->lane.workspace_bytes = counts > x->lane.workspace_bytes ? counts : x->lane.workspace_bytes;
    if ((int64_t)lim->max_seqs * x->model->arch.n_heads > CUDA_TICKETS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "max-running %d with %d heads is beyond %d tickets",
                       lim->max_seqs, x->model->arch.n_heads, CUDA_TICKETS);
    const struct {
        void **to;
        size_t bytes;
        bool zero;
    } want[] = {{&x->activations, x->prog->activation_bytes, false},
                {&x->workspace, x->lane.workspace_bytes, false},
                {&x->tickets, CUDA_TICKETS * 4, true},
                {&x->step_block, x->step_bytes, true},
                {&x->contexts, (size_t)x->max_contexts * 4, false},
                {&x->biases, (size_t)x->max_biases * 8, false},
                {&x->token_pool, (size_t)x->config.n_pool_slots * 4, true},
                {&x->copies, MAX_COPIES * sizeof(vt_page_copy), false}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        TRY(vt_cuda_alloc(c, want[i].bytes, want[i].to, err));
        if (want[i].zero)
            TRY(vt_cuda_check(
                c, c->driver.fill8(address(*want[i].to), 0, want[i].bytes, x->lane.stream),
                "clearing", err));
    }
    x->lane.workspace = x->workspace;
    x->lane.tickets = x->tickets;
    x->lane.token_pool = x->token_pool;
    x->lane.sample_contexts = x->contexts;
    x->lane.sample_biases = x->biases;
    return make_slots(x, err);
}

/* The embedding reads the step's tokens where they lie and looks up the pool itself. */
static void place_program(cuda_executor *x)
{
    vt_program_place(x->prog, x->activations);
    x->prog->token_pool = x->token_pool;
    for (int32_t i = 0; i < x->prog->n_calls; i++)
        if (x->prog->call[i].op == &embed_op)
            ((embed_args *)x->prog->call[i].args)->tokens = x->step_block;
}

static void choose_buckets(cuda_executor *x)
{
    int32_t most = x->config.limits.max_seqs < x->config.limits.max_tokens
                       ? x->config.limits.max_seqs
                       : x->config.limits.max_tokens;
    int32_t rows = x->config.limits.max_rows;
    for (size_t i = 0; i < sizeof kBuckets / sizeof *kBuckets; i++) {
        int32_t n = kBuckets[i] < most ? kBuckets[i] : most;
        if (n <= rows && (x->n_buckets == 0 || x->bucket[x->n_buckets - 1].seqs < n))
            x->bucket[x->n_buckets++].seqs = n;
    }
}

/* A dry run over the buckets and a ladder of prefill sizes names every kernel that steps need. */
static vt_status collect(cuda_executor *x, vt_err *err)
{
    vt_status status = VT_OK;
    x->lane.collect = true;
    for (int32_t i = 0; i < x->n_buckets && status == VT_OK; i++) {
        step_shape s = shape_of_bucket(x, x->bucket[i].seqs);
        bind(x, &s);
        status = run_calls(x, err);
    }
    for (int32_t t = 1; t <= x->config.limits.max_tokens && status == VT_OK;
         t = t < 32 ? t * 2 : t + 32) {
        step_shape s = {.tokens = t,
                        .seqs = 2,
                        .rows = 1,
                        .n_decode = 1,
                        .decode_items = 1,
                        .prefill_items = 1};
        bind(x, &s);
        status = run_calls(x, err);
    }
    for (int32_t r = 1; r <= x->config.limits.max_rows && status == VT_OK; r += r < 32 ? 8 : 32) {
        step_shape s = {.tokens = 1,
                        .seqs = 2,
                        .rows = r,
                        .n_decode = 1,
                        .decode_items = 1,
                        .prefill_items = 1};
        bind(x, &s);
        status = run_calls(x, err);
    }
    if (status == VT_OK)
        status = launch_copies(x, 1, err);
    x->lane.collect = false;
    return status;
}

static vt_status capture(cuda_executor *x, vt_err *err)
{
    for (int32_t i = x->n_buckets - 1; i >= 0; i--) {
        step_shape s = shape_of_bucket(x, x->bucket[i].seqs);
        bind(x, &s);
        TRY(cuda_graph_begin(&x->lane, err));
        vt_status status = run_calls(x, err);
        vt_status ended = cuda_graph_end(&x->lane, &x->bucket[i].graph,
                                         status == VT_OK ? err : NULL);
        TRY(status);
        TRY(ended);
        x->startup.n_graphs++;
    }
    return vt_cuda_check(x->cuda, x->cuda->driver.stream_sync(x->lane.stream), "capturing graphs",
                         err);
}

static double ms_since(int64_t *from)
{
    int64_t now = vt_now_ns(), before = *from;
    *from = now;
    return (double)(now - before) * 1e-6;
}

static vt_status describe(cuda_executor *x, vt_err *err)
{
    const vt_arch *a = &x->model->arch;
    x->plan = (attention_plan_config){
        .heads = a->n_heads,
        .kv_heads = a->n_kv_heads,
        .sm_count = x->cuda->sm_count,
        .prefill_rows = attention_prefill_rows(x->cuda, a->head_dim, x->config.limits.page_size),
        .deterministic = x->options.deterministic};
    x->lane.cuda = x->cuda;
    x->lane.prefill_rows = x->plan.prefill_rows;
    x->lane.pdl = x->options.pdl;
    x->lane.deterministic = x->options.deterministic;
    TRY(make_kv(x, err));
    vt_program_config config = {.device = VT_DEVICE_CUDA,
                                .isa = VT_ISA_PORTABLE,
                                .activation = VT_BF16,
                                .limits = x->config.limits};
    TRY(vt_program_build(&x->weights->model, &x->weights->weights, &x->kv, &config, &x->prog, err));
    choose_buckets(x);
    return VT_OK;
}

static vt_status build(cuda_executor *x, vt_err *err)
{
    int64_t t = vt_now_ns();
    TRY(vt_cuda_open(x->options.ordinal, &x->cuda, err));
    x->startup.open_ms = ms_since(&t);
    TRY(vt_cuda_check(x->cuda,
                      x->cuda->driver.stream_create(&x->lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    TRY(vt_cuda_weights_load(x->cuda, x->model, x->config.limits.max_context, x->config.n_threads,
                             &x->weights, err));
    x->startup.weights_ms = ms_since(&t);
    TRY(describe(x, err));
    TRY(make_memory(x, err));
    place_program(x);
    TRY(collect(x, err));
    TRY(vt_cuda_compile(x->cuda, x->options.progress, x->options.progress_user, err));
    x->startup.compile_ms = ms_since(&t);
    if (x->options.graphs)
        TRY(capture(x, err));
    x->startup.capture_ms = ms_since(&t);
    return VT_OK;
}

void vt_cuda_options_init(vt_cuda_options *o)
{
    const char *pdl = getenv("VITRINE_CUDA_PDL");
    *o = (vt_cuda_options){.graphs = true, .pdl = !(pdl && strcmp(pdl, "0") == 0)};
}

static cuda_executor *new_executor(const vt_model *m, const vt_executor_config *config,
                                   const vt_cuda_options *options, vt_err *err)
{
    cuda_executor *x = vt_calloc(1, sizeof *x);
    if (!x) {
        vt_fail(err, VT_ERR_MEMORY, "out of memory for the CUDA executor");
        return NULL;
    }
    x->base = (vt_executor){.name = "cuda",
                            .launch = cuda_exec_launch,
                            .wait = cuda_exec_wait,
                            .free = cuda_exec_free,
                            .program = cuda_exec_program,
                            .n_pool_slots = config->n_pool_slots};
    x->model = m;
    x->config = *config;
    x->options = *options;
    return x;
}

vt_status vt_executor_cuda_new(const vt_model *m, const vt_executor_config *config,
                               const vt_cuda_options *options, vt_executor **out, vt_err *err)
{
    if (config->kv_dtype != VT_BF16)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "kv-dtype %s is not there on CUDA, expected bf16",
                       vt_dtype_get(config->kv_dtype)->name);
    cuda_executor *x = new_executor(m, config, options, err);
    if (!x)
        return VT_ERR_MEMORY;
    vt_status status = build(x, err);
    if (status != VT_OK) {
        cuda_exec_free(&x->base);
        return status;
    }
    *out = &x->base;
    return VT_OK;
}

bool vt_executor_cuda_startup(const vt_executor *base, vt_cuda_startup *out)
{
    if (base->launch != cuda_exec_launch)
        return false;
    const cuda_executor *x = (const cuda_executor *)base;
    *out = x->startup;
    out->n_kernels = vt_jit_count(x->cuda->jit);
    out->late_compiles = x->cuda->late_compiles;
    out->weight_bytes = x->weights->bytes;
    return true;
}

vt_status vt_executor_cuda_kv_bytes(const vt_model *m, int32_t ordinal, int32_t max_context,
                                    int64_t *bytes, vt_err *err)
{
    vt_cuda *c;
    size_t free_bytes = 0, total = 0;
    TRY(vt_cuda_open(ordinal, &c, err));
    vt_status status = vt_cuda_check(c, c->driver.mem_info(&free_bytes, &total),
                                     "asking for free GPU memory", err);
    vt_cuda_close(c);
    if (status != VT_OK)
        return status;
    int64_t left = (int64_t)(free_bytes / 10 * 9) - (int64_t)vt_cuda_weights_bytes(m, max_context) -
                   ((int64_t)2 << 30);
    if (left <= 0)
        return vt_fail(err, VT_ERR_MEMORY,
                       "%s does not fit: its weights leave nothing of %.1f GiB free GPU memory",
                       m->name, (double)free_bytes / (1 << 30));
    *bytes = left;
    return VT_OK;
}

vt_status vt_executor_cuda_collect(const vt_model *m, const vt_limits *limits, const char *arch,
                                   int32_t level, vt_cuda **out, vt_err *err)
{
    vt_executor_config config = {
        .limits = *limits, .n_pages = 16, .n_pool_slots = limits->max_seqs, .kv_dtype = VT_BF16};
    vt_cuda_options options = {.pdl = level >= 90};
    cuda_executor *x = new_executor(m, &config, &options, err);
    if (!x)
        return VT_ERR_MEMORY;
    vt_status status = vt_cuda_offline(arch, level, 132, &x->cuda, err);
    if (status == VT_OK)
        status = vt_cuda_weights_load(NULL, m, limits->max_context, 1, &x->weights, err);
    if (status == VT_OK)
        status = describe(x, err);
    if (status == VT_OK) {
        x->lane.workspace_bytes = WORKSPACE_BYTES;
        status = collect(x, err);
    }
    if (status == VT_OK) {
        *out = x->cuda;
        x->cuda = NULL;
    }
    cuda_exec_free(&x->base);
    return status;
}
