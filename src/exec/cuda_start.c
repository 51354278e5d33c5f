/* Making a CUDA executor.
 *
 *   1. open the device; the file of cuBLASLt is loaded meanwhile, and the library is opened
 *      until step 6 begins
 *   2. describe the weights and give them memory; threads begin to upload them
 *                                                           weights cross the bus
 *   3. describe: target, KV cache, program                            |
 *   4. allocate memory and place the program's tensors in it          |
 *   5. a dry run (lane.collect) over a ladder of tokens and of rows   |
 *      notes every kernel that steps can need; all of them are        |
 *      compiled together, or come from the cubin cache, and loaded    |
 *   6. run once what cuBLASLt has in decode graphs, and capture a      |
 *      graph for every decode bucket                                  |
 *   7. wait for the weights                                 <---------+
 *
 * Steps 3 to 6 need the weights' addresses and none of their values. After a lost context
 * (cuda_recover.c) all but step 1 are done again. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/knob.h"
#include "base/mem.h"
#include "device/cuda/cublaslt.h"
#include "exec/cuda_inside.h"
#include "ops/comm_inbox_params.h"
#include "ops/knobs.h"

static vt_status make_results(cuda_executor *x, result_slot *s, vt_err *err)
{
    size_t rows = (size_t)x->config.limits.max_rows;
    void *p;
    const vt_tensor *h = x->prog->states;
    if (h) {
        size_t most = h->follows == VT_FOLLOWS_TOKENS ? (size_t)x->config.limits.max_tokens : rows;
        TRY(vt_cuda_pinned(x->cuda, most * (size_t)vt_dtype_row_bytes(h->dtype, h->dim[1]),
                           &s->hidden, err));
    }
    if (x->config.end == VT_END_POOLED)
        return VT_OK;
    TRY(vt_cuda_pinned(x->cuda, rows * 4, &p, err));
    s->token = p;
    TRY(vt_cuda_pinned(x->cuda, rows * 4, &p, err));
    s->logprob = p;
    TRY(vt_cuda_pinned(x->cuda, rows * 4 * VT_MAX_TOP_LOGPROBS, &p, err));
    s->top_id = p;
    TRY(vt_cuda_pinned(x->cuda, rows * 4 * VT_MAX_TOP_LOGPROBS, &p, err));
    s->top_logprob = p;
    return VT_OK;
}

/* The pinned host memory and the events of each step that may be in flight or still be read. */
static vt_status make_slots(cuda_executor *x, vt_err *err)
{
    for (int i = 0; i < SLOTS; i++) {
        result_slot *s = &x->slot[i];
        void *p;
        TRY(vt_cuda_pinned(x->cuda, x->step_bytes, &p, err));
        s->step_block = p;
        TRY(make_results(x, s, err));
        TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&s->begin, CU_EVENT_DEFAULT),
                          "making an event", err));
        TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_create(&s->end, CU_EVENT_DEFAULT),
                          "making an event", err));
    }
    return VT_OK;
}

/* Bytes of the largest step, with a page list for every sequence, and one of window pages. */
static size_t largest_block(const cuda_executor *x)
{
    const vt_limits *lim = &x->config.limits;
    vt_size several = vt_size_most(&x->config.limits), one = several;
    one.decode_tokens = 0; /* plans have more items then */
    step_shape s = cuda_step_of_size(x, &several), t = cuda_step_of_size(x, &one);
    size_t most = cuda_step_layout(x, &s).page_ids, other = cuda_step_layout(x, &t).page_ids;
    int64_t pages = (int64_t)lim->max_seqs * vt_ceil_div(lim->max_context, lim->page_size) +
                    lim->max_seqs;
    if (x->config.n_windows > 0)
        pages *= 2;
    return (most > other ? most : other) + (size_t)pages * 4 + 4096;
}

/* Reserves one part of a range for each plan with side data. A part has addresses for the most
 * bytes that its plan may ever bring; it gets memory when a step first brings some. */
static vt_status make_side(cuda_executor *x, vt_err *err)
{
    int32_t n = 0;
    size_t most = 0;
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        x->side_part[i] = p->plan->most_side_bytes ? n++ : -1;
        size_t bytes = p->plan->most_side_bytes
                           ? p->plan->most_side_bytes(p->args, &x->prog->target)
                           : 0;
        most = bytes > most ? bytes : most;
    }
    return n ? cuda_range_init_parts(x->cuda, n, most, &x->side, err) : VT_OK;
}

static vt_status too_many_tickets(const cuda_executor *x, const vt_call *c, int64_t n, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    char most[48] = "";
    if (n % lim->max_seqs == 0) /* every sequence needs the same number */
        snprintf(most, sizeof most, ", at most %lld",
                 CUDA_TICKETS / (long long)(n / lim->max_seqs));
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: max-running %d with %d rows of logits per step needs %lld tickets, but "
                   "there are only %d: set a smaller max-running%s",
                   c->label, lim->max_seqs, lim->max_rows, (long long)n, CUDA_TICKETS, most);
}

/* The calls of a step use the same tickets one after the other, so the largest need decides. */
static vt_status check_tickets(const cuda_executor *x, vt_err *err)
{
    for (int32_t i = 0; i < x->prog->n_calls; i++)
        for (int32_t k = 0; k < x->prog->call[i].n_choices; k++) {
            const vt_call *c = &x->prog->call[i];
            const vt_impl *impl = c->choice[k].impl;
            int64_t n = impl->tickets ? impl->tickets(c->args, &x->prog->target) : 0;
            if (n > CUDA_TICKETS)
                return too_many_tickets(x, c, n, err);
        }
    return VT_OK;
}

static vt_status make_memory(cuda_executor *x, vt_err *err)
{
    vt_cuda *c = x->cuda;
    bool peers = x->comm.group && !x->comm.group->gpu->staged;
    size_t shared = peers ? x->comm.group->gpu->part_bytes + comm_inbox_bytes(x->is.n) : 0;
    x->step_bytes = largest_block(x);
    TRY(check_tickets(x, err));
    const struct {
        void **to;
        size_t bytes;
        bool zero;
    } want[] = {{&x->activations, x->prog->activation_bytes, true}, /* padding reads old results */
                {&x->comm_flags, peers ? COMM_CTAS * COMM_GPU_RANKS * 4 : 0, true},
                {&x->comm_part, shared, true},
                {&x->workspace, x->prog->target.workspace_bytes, false},
                {&x->tickets, CUDA_TICKETS * 4, true},
                {&x->step_block, x->step_bytes, true},
                {&x->token_pool, (size_t)x->config.n_pool_slots * 4, true}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        if (want[i].bytes == 0)
            continue;
        TRY(vt_cuda_alloc(c, want[i].bytes, want[i].to, err));
        if (want[i].zero)
            TRY(vt_cuda_check(
                c, c->driver.fill8(cuda_address(*want[i].to), 0, want[i].bytes, x->lane.stream),
                "clearing", err));
    }
    TRY(make_side(x, err));
    vt_program_place(x->prog, x->activations);
    x->prog->token_pool = x->token_pool;
    return make_slots(x, err);
}

/* A dry run of all calls. A stamped call that is the last of a graph stamps its end, by another
 * kernel than in the middle of one: so once more, graph by graph. */
static vt_status collect_calls(cuda_executor *x, vt_err *err)
{
    const vt_program *p = x->prog;
    const int32_t border[] = {0, p->n_before, x->n_body, p->n_forward, p->n_calls};
    TRY(cuda_run_calls(x, 0, p->n_calls, err));
    for (int i = 0; i < 4 && x->lane.stamps; i++)
        TRY(cuda_run_calls(x, border[i], border[i + 1], err));
    return VT_OK;
}

/* A dry run of the bound shape's calls for each variant of its plans. */
static vt_status collect_variants(cuda_executor *x, step_shape *s, vt_err *err)
{
    vt_status status = VT_OK;
    int32_t most = 1;
    for (int32_t v = 0; v < most && status == VT_OK; v++) {
        for (int32_t i = 0; i < x->prog->n_plans; i++) {
            int32_t n = s->used[i] ? x->prog->plan[i].plan->n_variants : 1;
            s->variant[i] = v < n ? v : 0;
            most = n > most ? n : most;
        }
        status = collect_calls(x, err);
    }
    return status;
}

/* A dry run of all calls with this many tokens and rows, and at most so many decodes. It has as
 * many as that many tokens can have, because the choice of attention's kernel depends on their
 * number too. */
static vt_status collect_size(cuda_executor *x, int32_t tokens, int32_t rows, int32_t decode_tokens,
                              int32_t most, int32_t prefills, vt_err *err)
{
    vt_size size = {.tokens = tokens,
                    .seqs = most == 0       ? 1
                            : tokens < most ? tokens
                                            : most,
                    .rows = rows,
                    .decodes = tokens < most ? tokens : most,
                    .decode_tokens = decode_tokens,
                    .prefills = prefills,
                    .copies = 1};
    step_shape s = cuda_step_of_size(x, &size);
    cuda_step_bind(x, &s);
    vt_status status = collect_variants(x, &s, err);
    x->bound = NULL;
    return status;
}

/* The size after n in the ladder 1 2 4 ... 32 64 80 96 128 ... most, then 0. The choice of a kernel
 * changes only at these sizes. */
static int32_t next_size(int32_t n, int32_t most)
{
    int32_t next = n < 32 ? n * 2 : n == 64 || n == 80 ? n + 16 : n + 32;
    return n == most ? 0 : next < most ? next : most;
}

/* Dry runs of steps with at most this many tokens and rows. */
static vt_status collect_up_to(cuda_executor *x, int32_t tokens, int32_t rows, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    vt_status status = VT_OK;
    x->lane.collect = true;
    for (int32_t t = 1; t > 0 && status == VT_OK; t = next_size(t, tokens))
        status = collect_size(x, t, 1, 0, lim->max_seqs, 1, err);
    /* without decodes another call may stand before a library's, and stamp its end */
    for (int32_t t = 1; t > 0 && status == VT_OK && x->lane.stamps; t = next_size(t, tokens))
        status = collect_size(x, t, 1, 0, 0, 1, err);
    /* decodes alone may make what stands in front of their attention */
    for (int32_t t = 1; t > 0 && status == VT_OK; t = next_size(t, lim->max_seqs))
        status = collect_size(x, t, 1, 0, lim->max_seqs, 0, err);
    for (int32_t t = 1; t > 0 && status == VT_OK; t = next_size(t, lim->max_seqs))
        if (lim->decode_tokens > 1)
            status = collect_size(x, t, 1, lim->decode_tokens, lim->max_seqs, 1, err);
    for (int32_t r = 1; r > 0 && status == VT_OK; r = next_size(r, rows))
        status = collect_size(x, 1, r, 0, lim->max_seqs, 1, err);
    x->lane.collect = false;
    return status;
}

vt_status cuda_start_collect(cuda_executor *x, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    cuda_stamped_collect(x);
    vt_status status = collect_up_to(x, lim->max_tokens, lim->max_rows, err);
    cuda_stamped_end(x);
    return status;
}

/* The bytes that malloc had handed out when the graphs had this many nodes. */
typedef struct graph_memory {
    size_t bytes;
    int64_t nodes;
} graph_memory;

static graph_memory look_at_memory(const cuda_executor *x)
{
    return (graph_memory){vt_malloc_look().used, x->graph_nodes};
}

/* Host memory that the driver keeps for each node of a graph. It is measured once, over all decode
 * graphs, and not around every later capture: looking at malloc's heaps takes up to a millisecond,
 * and what other threads allocate meanwhile would count as the graph's. */
static void measure_nodes(cuda_executor *x, graph_memory from)
{
    graph_memory now = look_at_memory(x);
    bool grown = now.bytes > from.bytes && now.nodes > from.nodes;
    x->node_host_bytes = grown ? (double)(now.bytes - from.bytes) / (double)(now.nodes - from.nodes)
                               : 0;
}

/* Captures the graphs of all decode buckets, the largest first. The memory of the first bucket's
 * graphs is left out of the measurement where there are more, because the driver allocates then
 * what all graphs share. */
static vt_status capture(cuda_executor *x, vt_err *err)
{
    int32_t most = cuda_step_most_decode(x), above = INT32_MAX;
    graph_memory from = look_at_memory(x);
    for (int32_t n = most; n > 0; n--) {
        int32_t seqs = cuda_step_bucket(n, most);
        if (seqs == 0 || seqs == above)
            continue;
        bool first = above == INT32_MAX;
        step_shape s = cuda_step_decode(x, above = seqs);
        cuda_step_bind(x, &s);
        vt_status status = cuda_graph_capture(x, &s, err);
        x->bound = NULL;
        TRY(status);
        if (first && n > 1)
            from = look_at_memory(x);
        TRY(vt_progress_report(x->config.progress, "capturing graphs", most - n + 1, most, err));
    }
    measure_nodes(x, from);
    return vt_cuda_check(x->cuda, x->cuda->driver.stream_sync(x->lane.stream), "capturing graphs",
                         err);
}

/* Milliseconds since *from, which becomes now. */
static double ms_since(int64_t *from)
{
    int64_t now = vt_now_ns(), before = *from;
    *from = now;
    return (double)(now - before) * 1e-6;
}

/* Returns true if any matrix of this model is large enough for cuBLASLt to be faster. */
static bool wants_library(const vt_layout *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        const vt_layout_entry *e = &l->entry[i];
        int64_t cols = e->part[0].cols;
        if (e->kind == VT_KIND_MATRIX && cols >= CUBLASLT_LEAST_COLS &&
            vt_layout_rows(e) * cols >= CUBLASLT_LEAST)
            return true;
    }
    return false;
}

vt_target vt_target_cuda(const vt_cuda *c, const vt_cuda_options *o, bool library,
                         const vt_limits *limits)
{
    vt_target t = {.device = VT_DEVICE_CUDA,
                   .limits = *limits,
                   .level = c->level,
                   .sm_count = c->sm_count,
                   .max_shared_bytes = c->max_shared_bytes,
                   .deterministic = o->deterministic,
                   .cublaslt = library,
                   .cublaslt_all = library && c->cublaslt_use == CUBLASLT_ALL};
    vt_target_read_knobs(&t);
    return t;
}

static vt_target target_of(const cuda_executor *x)
{
    vt_target t = vt_target_cuda(x->cuda, &x->options, x->library, &x->config.limits);
    t.n_backends = x->config.n_backends;
    memcpy(t.backend, x->config.backend, sizeof t.backend);
    return t;
}

vt_status cuda_start_describe(cuda_executor *x, vt_err *err)
{
    x->lane.cuda = x->cuda;
    x->lane.pdl = x->options.pdl;
    x->graph_tokens = x->model->arch.n_experts ? 0 : GRAPH_TOKENS; /* docs/cuda.md says why */
    TRY(cuda_kv_make(x, err));
    vt_program_config config = {.target = target_of(x),
                                .activation = VT_BF16,
                                .end = x->config.end,
                                .states = x->config.states,
                                .comm = x->comm.group ? &x->comm : NULL};
    TRY(vt_program_build(x->model, &x->weights->weights, &x->kv, &config, &x->prog, err));
    x->tail_bytes = cuda_step_tail_bytes(x, x->config.limits.max_rows);
    x->n_body = x->prog->n_forward;
    while (x->n_body > 0 && x->prog->call[x->n_body - 1].when == VT_WHEN_ROWS)
        x->n_body--;
    return VT_OK;
}

/* Loading the file of cuBLASLt takes as long as opening the device. In a thread beside it, it costs
 * little time. */
static void *preload_library(void *arg)
{
    (void)arg;
    vt_cublaslt_preload();
    return NULL;
}

/* Body of the thread that opens the library. */
static void *open_library(void *arg)
{
    vt_cublaslt_prepare(arg);
    return NULL;
}

/* Opens the library, if it is there, in a thread. */
static void begin_library(cuda_executor *x)
{
    char why[160];
    x->library = vt_cublaslt_find(x->cuda, why, sizeof why);
    if (!x->library)
        return;
    x->startup.opening = pthread_create(&x->startup.opener, NULL, open_library, x->cuda) == 0;
    if (!x->startup.opening)
        open_library(x->cuda);
}

/* Nothing may use the library before this. */
static void end_library(cuda_executor *x)
{
    if (x->startup.opening)
        pthread_join(x->startup.opener, NULL);
    x->startup.opening = false;
}

/* Has the library load its kernels of decode graphs. */
static vt_status collect_library(cuda_executor *x, vt_err *err)
{
    const vt_limits *lim = &x->config.limits;
    int32_t tokens = lim->max_tokens < CUBLASLT_WARM ? lim->max_tokens : CUBLASLT_WARM;
    int32_t rows = lim->max_rows < CUBLASLT_WARM ? lim->max_rows : CUBLASLT_WARM;
    end_library(x);
    return x->library ? collect_up_to(x, tokens, rows, err) : VT_OK;
}

static vt_status open_device(int32_t ordinal, bool library, vt_cuda **out, vt_err *err)
{
    pthread_t thread;
    bool started = library && pthread_create(&thread, NULL, preload_library, NULL) == 0;
    vt_status status = vt_cuda_open(ordinal, out, err);
    if (started)
        pthread_join(thread, NULL);
    return status;
}

vt_status vt_executor_cuda_open(const vt_model *m, vt_cuda_options *o, vt_err *err)
{
    int64_t t = vt_now_ns();
    vt_layout *layout;
    TRY(vt_layout_make(m, &layout, err));
    bool library = !o->deterministic && !o->brief && wants_library(layout);
    vt_layout_free(layout);
    TRY(open_device(o->ordinal, library, &o->device, err));
    for (int32_t r = 1; r < o->n_ranks; r++)
        TRY(vt_cuda_open(o->gpu[r], &o->peer[r], err));
    o->open_ms = ms_since(&t);
    return VT_OK;
}

/* With --deterministic every product runs on our own kernels. So it does where one sequence runs
 * at a time, at level 90: the library takes 0.3 s to open and 350 MiB of memory, and saves at most
 * some per cent of the time of prompts. */
bool vt_cuda_may_use_library(const vt_cuda *c, const vt_cuda_options *o, const vt_layout *layout)
{
    if (c->cublaslt_use == CUBLASLT_NEVER || o->deterministic)
        return false;
    if (o->brief && c->level >= 90 && !vt_knob_text(&vt_knobs[VT_KNOB_CUBLASLT]))
        return false;
    return wants_library(layout) || c->cublaslt_use == CUBLASLT_ALL;
}

static bool on_compiled(void *user, int32_t done, int32_t total, const char *name, double ms,
                        bool cached)
{
    const cuda_executor *x = user;
    (void)name, (void)ms, (void)cached;
    return vt_progress_report(x->config.progress, "compiling kernels", done, total, NULL) == VT_OK;
}

/* Steps 3 and 4. */
static vt_status place(cuda_executor *x, vt_err *err)
{
    const vt_layout *layout = x->startup.layout;
    TRY(vt_cuda_check(x->cuda,
                      x->cuda->driver.stream_create(&x->lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    TRY(vt_progress_report(x->config.progress, "uploading weights", 0, 1, err));
    TRY(vt_cuda_weights_begin(x->cuda, layout, x->config.limits.max_context, x->config.n_threads,
                              &x->weights, &x->startup.upload, err));
    int64_t t = vt_now_ns();
    if (vt_cuda_may_use_library(x->cuda, &x->options, layout))
        begin_library(x);
    TRY(cuda_start_describe(x, err));
    TRY(make_memory(x, err));
    x->startup.compile_ms = ms_since(&t);
    return VT_OK;
}

/* Steps 5 and 6. */
static vt_status make_kernels(cuda_executor *x, vt_err *err)
{
    int64_t t = vt_now_ns();
    TRY(cuda_stamped_start(x, err));
    x->lane.own = true;
    vt_status status = cuda_start_collect(x, err);
    x->lane.own = false;
    TRY(status);
    TRY(vt_cuda_compile(x->cuda, on_compiled, x, err));
    TRY(collect_library(x, err));
    x->startup.compile_ms += ms_since(&t);
    if (x->options.graphs)
        TRY(capture(x, err));
    x->startup.capture_ms = ms_since(&t);
    return VT_OK;
}

/* Ends the upload; with `stop` early. */
static vt_status end_upload(cuda_executor *x, bool stop, vt_err *err)
{
    vt_status status = VT_OK;
    if (x->startup.upload)
        status = vt_cuda_weights_end(x->startup.upload, stop, err);
    if (x->weights)
        x->startup.weights_ms = x->weights->load_ms;
    x->startup.upload = NULL;
    vt_layout_free(x->startup.layout);
    x->startup.layout = NULL;
    return status;
}

void cuda_start_give_up(cuda_executor *x)
{
    end_library(x);
    if (x->cuda && vt_cuda_enter(x->cuda, NULL) == VT_OK)
        (void)end_upload(x, true, NULL);
}

vt_status cuda_start_place(cuda_executor *x, vt_err *err)
{
    if (!x->cuda) {
        TRY(vt_executor_cuda_open(x->model, &x->options, err));
        x->cuda = x->options.device;
        x->startup.open_ms = x->options.open_ms;
    }
    TRY(vt_cuda_enter(x->cuda, err));
    TRY(vt_layout_make(x->model, &x->startup.layout, err));
    vt_ranks_narrow(x->startup.layout, &x->is);
    vt_status status = place(x, err);
    if (status != VT_OK)
        cuda_start_give_up(x);
    return status;
}

vt_status cuda_start_finish(cuda_executor *x, vt_err *err)
{
    vt_status status = vt_cuda_enter(x->cuda, err);
    if (status == VT_OK) /* before graphs are captured, which it watches */
        status = cuda_activity_open(x, err);
    vt_jit_set_lines(x->cuda->jit, x->options.lines);
    if (status == VT_OK)
        status = make_kernels(x, err);
    end_library(x);
    vt_status uploaded = end_upload(x, status != VT_OK, status == VT_OK ? err : NULL);
    TRY(status);
    TRY(uploaded);
    TRY(vt_progress_report(x->config.progress, "uploading weights", 1, 1, err));
    if (x->observers.n > 0)
        return vt_observers_renew(&x->observers, err);
    TRY(cuda_spans_new(x, err)); /* before that of counters, which leaves timed steps alone */
    TRY(cuda_vitals_new(x, err));
    cuda_activity_observe(x);
    TRY(cuda_lines_new(x, err));
    return cuda_pm_new(x, err);
}

vt_status cuda_start_build(cuda_executor *x, vt_err *err)
{
    TRY(cuda_start_place(x, err));
    return cuda_start_finish(x, err);
}
