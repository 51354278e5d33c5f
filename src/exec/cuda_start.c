/* Making a CUDA executor: memory, the program's place in it, kernels, the decode buckets' graphs.
 *
 * Kernels are named by a dry run (lane.collect) over a ladder of tokens and of rows, and compiled
 * together before anything runs. */
#include "base/clock.h"
#include "base/err.h"
#include "exec/cuda_inside.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear_cuda.h"
#include "ops/moe/moe_cuda.h"

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
    step_shape s = cuda_step_largest(x);
    int64_t pages = (int64_t)lim->max_seqs * vt_ceil_div(lim->max_context, lim->page_size) +
                    lim->max_seqs;
    return cuda_step_layout(x, &s).page_ids + (size_t)pages * 4 + 4096;
}

static vt_status make_memory(cuda_executor *x, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    vt_cuda *c = x->cuda;
    x->step_bytes = largest_block(x);
    x->most = (sample_cuda_counts){.contexts = (int64_t)lim->max_seqs * lim->max_context,
                                   .biases = (int64_t)lim->max_rows * 1024,
                                   .mask_words = (int64_t)lim->max_seqs *
                                                 vt_ceil_div(x->model->arch.vocab, 32)};
    size_t decode = attention_decode_workspace(
        &x->plan, attention_decode_capacity(&x->plan, lim->max_seqs, lim->max_context),
        x->model->arch.head_dim);
    const vt_arch *a = &x->model->arch;
    size_t sample = sample_cuda_workspace(lim->max_rows, a->vocab);
    size_t moe = a->n_experts ? moe_cuda_workspace(lim->max_tokens, a->n_experts_used, a->n_experts,
                                                   a->hidden, a->expert_ffn)
                              : 0;
    x->lane.workspace_bytes = WORKSPACE_BYTES;
    x->lane.workspace_bytes = moe > x->lane.workspace_bytes ? moe : x->lane.workspace_bytes;
    x->lane.workspace_bytes = decode > x->lane.workspace_bytes ? decode : x->lane.workspace_bytes;
    x->lane.workspace_bytes = sample > x->lane.workspace_bytes ? sample : x->lane.workspace_bytes;
    if ((int64_t)lim->max_seqs * x->model->arch.n_heads > CUDA_TICKETS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "max-running %d with %d heads is beyond %d tickets",
                       lim->max_seqs, x->model->arch.n_heads, CUDA_TICKETS);
    if (lim->max_rows > CUDA_TICKETS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%d rows of logits a step are beyond %d tickets",
                       lim->max_rows, CUDA_TICKETS);
    const struct {
        void **to;
        size_t bytes;
        bool zero;
    } want[] = {{&x->activations, x->prog->activation_bytes, true}, /* padding reads old results */
                {&x->workspace, x->lane.workspace_bytes, false},
                {&x->tickets, CUDA_TICKETS * 4, true},
                {&x->step_block, x->step_bytes, true},
                {&x->contexts, (size_t)x->most.contexts * 4, false},
                {&x->biases, (size_t)x->most.biases * 8, false},
                {&x->masks, (size_t)x->most.mask_words * 4, false},
                {&x->token_pool, (size_t)x->config.n_pool_slots * 4, true},
                {&x->copies, (size_t)lim->max_seqs * sizeof(vt_page_copy), false}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        TRY(vt_cuda_alloc(c, want[i].bytes, want[i].to, err));
        if (want[i].zero)
            TRY(vt_cuda_check(
                c, c->driver.fill8(cuda_address(*want[i].to), 0, want[i].bytes, x->lane.stream),
                "clearing", err));
    }
    x->lane.workspace = x->workspace;
    x->lane.tickets = x->tickets;
    x->lane.token_pool = x->token_pool;
    x->lane.sample_contexts = x->contexts;
    x->lane.sample_biases = x->biases;
    x->lane.sample_masks = x->masks;
    return make_slots(x, err);
}

/* The embedding reads the step's tokens where they lie and looks up the pool itself. */
static void place_program(cuda_executor *x)
{
    vt_program_place(x->prog, x->activations);
    x->prog->token_pool = x->token_pool;
    for (int32_t i = 0; i < x->prog->n_calls; i++)
        if (x->prog->call[i].op == &embed_op)
            ((embed_args *)x->prog->call[i].args)->tokens =
                (const int32_t *)((char *)x->step_block + x->tail_bytes);
}

/* Layers, and rows, for a dry run. As many decodes as there may be of tokens: attention's kernel
 * depends on them too. */
static vt_status collect_size(cuda_executor *x, int32_t tokens, int32_t rows, vt_err *err)
{
    int32_t most = x->config.limits.max_seqs;
    step_shape s = {.tokens = tokens,
                    .seqs = 2,
                    .rows = rows,
                    .decodes = tokens < most ? tokens : most,
                    .decode_items = 1,
                    .prefill_items = 1};
    cuda_step_bind(x, &s);
    return cuda_run_calls(x, 0, x->prog->n_calls, err);
}

/* 1 2 4 ... 32 64 96 ... most; then 0. Kernels change at these sizes. */
static int32_t next_size(int32_t n, int32_t most)
{
    int32_t next = n < 32 ? n * 2 : n + 32;
    return n == most ? 0 : next < most ? next : most;
}

vt_status cuda_start_collect(cuda_executor *x, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    vt_status status = VT_OK;
    x->lane.collect = true;
    for (int32_t t = 1; t > 0 && status == VT_OK; t = next_size(t, lim->max_tokens))
        status = collect_size(x, t, 1, err);
    for (int32_t r = 1; r > 0 && status == VT_OK; r = next_size(r, lim->max_rows))
        status = collect_size(x, 1, r, err);
    if (status == VT_OK)
        status = cuda_run_copies(x, 1, err);
    x->lane.collect = false;
    return status;
}

/* The decode buckets, the largest first. */
static vt_status capture(cuda_executor *x, vt_err *err)
{
    int32_t most = cuda_step_most_decode(x), above = INT32_MAX;
    for (int32_t n = most; n > 0; n--) {
        int32_t seqs = cuda_step_bucket(n, most);
        if (seqs == 0 || seqs == above)
            continue;
        step_shape s = cuda_step_decode(x, above = seqs);
        cuda_step_bind(x, &s);
        TRY(cuda_graph_capture(x, &s, err));
        TRY(vt_progress_report(x->config.progress, "capturing graphs", most - n + 1, most, err));
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

vt_status cuda_start_describe(cuda_executor *x, vt_err *err)
{
    const vt_arch *a = &x->model->arch;
    x->plan = (attention_plan_config){
        .heads = a->n_heads,
        .kv_heads = a->n_kv_heads,
        .few = attention_decode_shape_of(x->cuda, a->head_dim, ATTENTION_FEW),
        .sm_count = x->cuda->sm_count,
        .prefill_rows = attention_prefill_rows(x->cuda, a->head_dim, x->config.limits.page_size),
        .deterministic = x->options.deterministic,
        .shared_rows = x->options.shared_rows};
    x->lane.cuda = x->cuda;
    x->lane.prefill_rows = x->plan.prefill_rows;
    x->lane.pdl = x->options.pdl;
    x->lane.deterministic = x->options.deterministic;
    x->max_graphs = MAX_GRAPHS;
    x->graph_tokens = a->n_experts ? 0 : GRAPH_TOKENS; /* docs/cuda.md says why */
    x->tail_bytes = cuda_step_tail_bytes(x->config.limits.max_rows);
    TRY(cuda_kv_make(x, err));
    vt_program_config config = {.device = VT_DEVICE_CUDA,
                                .isa = VT_ISA_PORTABLE,
                                .activation = VT_BF16,
                                .limits = x->config.limits};
    TRY(vt_program_build(&x->weights->model, &x->weights->weights, &x->kv, &config, &x->prog, err));
    x->n_body = x->prog->n_forward;
    while (x->n_body > 0 && x->prog->call[x->n_body - 1].when == VT_WHEN_ROWS)
        x->n_body--;
    return VT_OK;
}

/* Opening cuBLASLt takes as long as opening the device and loading a small model's weights do;
 * beside them it takes little time. */
static void *preload_library(void *arg)
{
    linear_cublaslt_preload(((const cuda_executor *)arg)->model->arch.hidden);
    return NULL;
}

static void *prepare_library(void *arg)
{
    const cuda_executor *x = arg;
    linear_cublaslt_prepare(x->cuda, x->model->arch.hidden);
    return NULL;
}

static vt_status open_device(cuda_executor *x, vt_err *err)
{
    pthread_t thread;
    bool started = !x->options.deterministic &&
                   pthread_create(&thread, NULL, preload_library, x) == 0;
    vt_status status = vt_cuda_open(x->options.ordinal, &x->cuda, err);
    if (started)
        pthread_join(thread, NULL);
    return status;
}

static vt_status load_weights(cuda_executor *x, vt_err *err)
{
    pthread_t thread;
    bool started = !x->options.deterministic &&
                   pthread_create(&thread, NULL, prepare_library, x) == 0;
    vt_status status = vt_cuda_weights_load(x->cuda, x->model, x->config.limits.max_context,
                                            x->config.n_threads, &x->weights, err);
    if (started)
        pthread_join(thread, NULL);
    return status;
}

static bool on_compiled(void *user, int32_t done, int32_t total, const char *name, double ms,
                        bool cached)
{
    const cuda_executor *x = user;
    (void)name, (void)ms, (void)cached;
    return vt_progress_report(x->config.progress, "compiling kernels", done, total, NULL) == VT_OK;
}

vt_status cuda_start_build(cuda_executor *x, vt_err *err)
{
    int64_t t = vt_now_ns();
    TRY(open_device(x, err));
    x->startup.open_ms = ms_since(&t);
    TRY(vt_cuda_check(x->cuda,
                      x->cuda->driver.stream_create(&x->lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    TRY(vt_progress_report(x->config.progress, "uploading weights", 0, 1, err));
    TRY(load_weights(x, err));
    TRY(vt_progress_report(x->config.progress, "uploading weights", 1, 1, err));
    x->startup.weights_ms = ms_since(&t);
    TRY(cuda_start_describe(x, err));
    TRY(make_memory(x, err));
    place_program(x);
    TRY(cuda_start_collect(x, err));
    TRY(vt_cuda_compile(x->cuda, on_compiled, x, err));
    x->startup.compile_ms = ms_since(&t);
    if (x->options.graphs)
        TRY(capture(x, err));
    x->startup.capture_ms = ms_since(&t);
    return x->config.record ? cuda_spans_new(x, err) : VT_OK;
}
