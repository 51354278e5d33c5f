/* The CUDA executor: steps on one stream, as graphs up to 1,024 tokens (cuda_graph.c).
 *
 *   launch   host: arrays, plan and sampling rows of the step -> pinned block -> one copy
 *   device   page copies | layers | head | sample (graphs of the bucket, or call by call) |
 *            results to pinned memory
 *            of a held step all up to the head; sampling and results follow at its sample()
 *   wait     the event after the results of the oldest step
 *
 * A step's block (cuda_step.c) lies at one device address; the stream orders its reuse, so two
 * steps may be in flight with one block on the device and four on the host. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "device/cuda/cublaslt.h"
#include "exec/cuda_inside.h"
#include "ops/knobs.h"

static vt_status fetch(cuda_executor *x, void *to, const vt_tensor *from, size_t bytes, vt_err *err)
{
    TRY(vt_cuda_check(
        x->cuda, x->cuda->driver.copy_to_host(to, cuda_address(from->data), bytes, x->lane.stream),
        "fetching results", err));
    return vt_observe(&x->observers, VT_MARK_OUT, (int64_t)bytes, err);
}

/* The hidden states that the program gives: of the rows, of all tokens, or the sums of segments. */
static vt_status fetch_states(cuda_executor *x, const vt_step *step, result_slot *slot, vt_err *err)
{
    const vt_tensor *t = x->prog->states;
    int32_t n = !t                                ? 0
                : x->config.end == VT_END_POOLED  ? vt_segment_count(&step->batch)
                : t->follows == VT_FOLLOWS_TOKENS ? step->batch.n_tokens
                                                  : step->batch.n_rows;
    if (n == 0)
        return VT_OK;
    size_t row = (size_t)vt_dtype_row_bytes(t->dtype, t->dim[1]);
    return fetch(x, slot->hidden, t, (size_t)n * row, err);
}

static vt_status fetch_results(cuda_executor *x, const vt_step *step, result_slot *slot,
                               vt_err *err)
{
    size_t n = (size_t)step->batch.n_rows;
    bool logprobs = false, tops = false;
    TRY(fetch_states(x, step, slot, err));
    if (!slot->token)
        return VT_OK;
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
            TRY(fetch(x, part[i].to, part[i].from, n * part[i].each, err));
    if (!logprobs)
        memset(slot->logprob, 0, n * 4);
    return VT_OK;
}

/* Page copies run before everything else of the step, even before its block is uploaded. */
static vt_status run_copies(cuda_executor *x, const vt_step *step, const step_shape *shape,
                            result_slot *slot, vt_err *err)
{
    if (step->batch.n_copies > x->config.limits.max_seqs)
        return vt_fail(err, VT_ERR_USAGE, "step %llu copies %d pages for at most %d sequences",
                       (unsigned long long)step->id, step->batch.n_copies,
                       x->config.limits.max_seqs);
    TRY(cuda_step_upload_side(x, step, shape, false, slot, err));
    if (!step->held)
        TRY(cuda_step_upload_side(x, step, shape, true, slot, err));
    return cuda_run_calls(x, 0, x->prog->n_before, err);
}

/* The part of the contract below that can be seen in a step: a decode is one token, the last, and
 * one with guesses some more. */
static vt_status check_decodes(const vt_step *step, vt_err *err)
{
    const vt_batch *b = &step->batch;
    for (int32_t i = 0; i < b->n_decode + b->n_drafted; i++) {
        int32_t token = b->q_start[i], n = b->q_start[i + 1] - token;
        if ((i < b->n_decode ? n != 1 : n < 2) || b->position[token] != b->kv_len[i] - n)
            return vt_fail(err, VT_ERR_USAGE,
                           "step %llu: decode %d has %d tokens, the first at position %d of %d; "
                           "expected %s",
                           (unsigned long long)step->id, i, n, b->position[token], b->kv_len[i],
                           i < b->n_decode ? "one, at the last position"
                                           : "several, up to the last position");
    }
    return VT_OK;
}

/* Uploads the step and runs it, of a held step the forward pass alone. `apart`: use no graphs.
 *
 * A kernel may read the KV of a decode's earlier tokens before this step's rope_store has run
 * (attention's decode kernel does). Two facts make that safe: a decode attends to no KV that this
 * step stores except its own tokens' (ops/batch.h), and this upload lies between the kernels of two
 * steps, so that the step before has stored its KV. */
static vt_status run_batch(cuda_executor *x, const vt_step *step, const step_shape *shape,
                           bool apart, result_slot *slot, vt_err *err)
{
    TRY(check_decodes(step, err));
    size_t begin = x->bound_layout.begin, end;
    TRY(cuda_step_fill(x, step, shape, slot->step_block, &end, err));
    assert(end > begin); /* without this copy two steps' kernels could overlap */
    TRY(vt_cuda_check(x->cuda,
                      x->cuda->driver.copy_to_device(cuda_address(x->step_block) + begin,
                                                     slot->step_block + begin, end - begin,
                                                     x->lane.stream),
                      "uploading a step", err));
    TRY(vt_observe(&x->observers, VT_MARK_IN, (int64_t)(end - begin), err));
    if (shape->decode || shape->body)
        TRY(vt_observe(&x->observers, VT_MARK_GRAPH, shape->size.tokens, err));
    TRY(vt_observe(&x->observers, VT_MARK_UPLOADED, 0, err));
    int32_t end_call = step->held ? x->prog->n_forward : x->prog->n_calls;
    return cuda_graph_run(x, shape, x->prog->n_before, end_call, apart, err);
}

/* Behind all calls of a step: fetches its results, and marks its end. Pieces of the step that could
 * have run as graphs but have none yet are captured then, while the device works on the step. A
 * failure to capture does not concern the step: it only means that none is captured for a while. */
static vt_status end_launch(cuda_executor *x, const vt_step *step, const step_shape *shape,
                            result_slot *slot, vt_err *err)
{
    bool some = step->batch.n_tokens > 0;
    TRY(vt_observe(&x->observers, VT_MARK_RAN, 0, err));
    if (some)
        TRY(fetch_results(x, step, slot, err));
    TRY(vt_observe(&x->observers, VT_MARK_LAUNCHED, 0, err));
    x->lane.apart = false;
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_record(slot->end, x->lane.stream),
                      "recording an event", err));
    if (some && x->options.graphs)
        (void)cuda_graph_capture(x, shape, NULL);
    return VT_OK;
}

static vt_status run_step(cuda_executor *x, const vt_step *step, result_slot *slot, vt_err *err)
{
    const cuda_driver *d = &x->cuda->driver;
    bool some = step->batch.n_tokens > 0, apart = vt_observers_begin(&x->observers, step);
    step_shape shape = cuda_step_shape(x, &step->batch);
    shape.held = step->held;
    if (apart)
        TRY(vt_observe(&x->observers, VT_MARK_APART, 0, err));
    x->lane.apart = apart;
    x->prog->rows = step->rows;
    cuda_step_bind(x, &shape);
    if (x->lane.stamps)
        cuda_stamped_prepare(x, &shape);
    TRY(vt_cuda_check(x->cuda, d->event_record(slot->begin, x->lane.stream), "recording an event",
                      err));
    TRY(run_copies(x, step, &shape, slot, err));
    if (some)
        TRY(run_batch(x, step, &shape, apart, slot, err));
    slot->n_rows = step->batch.n_rows;
    if (!step->held)
        return end_launch(x, step, &shape, slot, err);
    x->unsampled.step = step;
    x->unsampled.shape = shape;
    x->unsampled.slot = slot;
    x->unsampled.apart = apart;
    return VT_OK;
}

/* The second part of a held step. */
static vt_status run_sampling(cuda_executor *x, vt_err *err)
{
    const vt_step *step = x->unsampled.step;
    const step_shape *shape = &x->unsampled.shape;
    x->lane.apart = x->unsampled.apart;
    x->prog->rows = step->rows;
    cuda_step_bind(x, shape);
    TRY(cuda_step_upload_side(x, step, shape, true, x->unsampled.slot, err));
    TRY(cuda_step_upload_late(x, shape, x->unsampled.slot, err));
    TRY(cuda_graph_run(x, shape, x->prog->n_forward, x->prog->n_calls, x->unsampled.apart, err));
    return end_launch(x, step, shape, x->unsampled.slot, err);
}

/* Waits for what was launched of a step that could not be launched as a whole: the next step fills
 * the same block, which these parts may still read. */
static void wait_for_failed(cuda_executor *x, const result_slot *slot)
{
    if (x->cuda->driver.event_record(slot->end, x->lane.stream) == 0)
        (void)cuda_wait_event(x, slot->end, "waiting for a step", NULL);
    else
        x->cuda->driver.stream_sync(x->lane.stream);
}

static void note_held(cuda_executor *x)
{
    atomic_store_explicit(&x->held.graphs, x->n_graphs, memory_order_relaxed);
    atomic_store_explicit(&x->held.captures, x->captures, memory_order_relaxed);
    atomic_store_explicit(&x->held.graph_bytes,
                          (int64_t)((double)x->graph_nodes * x->node_host_bytes),
                          memory_order_relaxed);
    atomic_store_explicit(&x->held.kernels, x->cuda->n_kernels, memory_order_relaxed);
    atomic_store_explicit(&x->held.algorithms, vt_cublaslt_algorithms(x->cuda),
                          memory_order_relaxed);
}

static void cuda_exec_held(const vt_executor *base, vt_executor_held *out)
{
    const cuda_executor *x = (const cuda_executor *)base;
    *out = (vt_executor_held){
        .graphs = atomic_load_explicit(&x->held.graphs, memory_order_relaxed),
        .captures = atomic_load_explicit(&x->held.captures, memory_order_relaxed),
        .kernels = atomic_load_explicit(&x->held.kernels, memory_order_relaxed),
        .algorithms = atomic_load_explicit(&x->held.algorithms, memory_order_relaxed),
        .graph_host_bytes = atomic_load_explicit(&x->held.graph_bytes, memory_order_relaxed)};
}

static vt_status cuda_exec_launch(vt_executor *base, const vt_step *step, vt_err *err)
{
    cuda_executor *x = (cuda_executor *)base;
    TRY(vt_step_check(&x->config.limits, step, err));
    if (x->lost)
        return vt_fail(err, VT_ERR_DEVICE, "the GPU's context is lost and was not made again");
    if (x->launched - x->waited >= MAX_IN_FLIGHT)
        return vt_fail(err, VT_ERR_USAGE, "step %llu: %d steps are in flight already",
                       (unsigned long long)step->id, MAX_IN_FLIGHT);
    TRY(vt_cuda_enter(x->cuda, err));
    result_slot *slot = &x->slot[x->launched % SLOTS];
    slot->view.id = step->id;
    vt_status status = run_step(x, step, slot, err);
    note_held(x);
    x->bound = NULL;
    x->lane.apart = false;
    if (status == VT_OK) {
        x->launched++;
    } else {
        cuda_ranks_fail(x);
        wait_for_failed(x, slot);
    }
    return status;
}

static vt_status cuda_exec_sample(vt_executor *base, vt_err *err)
{
    cuda_executor *x = (cuda_executor *)base;
    if (!x->unsampled.step)
        return vt_fail(err, VT_ERR_USAGE, "no step is held");
    vt_status status = vt_cuda_enter(x->cuda, err);
    if (status == VT_OK)
        status = run_sampling(x, err);
    note_held(x);
    x->bound = NULL;
    x->lane.apart = false;
    if (status == VT_OK)
        x->unsampled.step = NULL; /* else its wait drops it */
    return status;
}

/* Ends a held step that is not to be sampled, so that it can be waited for. */
static vt_status drop_unsampled(cuda_executor *x, vt_err *err)
{
    result_slot *slot = x->unsampled.slot;
    x->unsampled.step = NULL;
    slot->n_rows = 0; /* nothing was chosen */
    TRY(vt_observe(&x->observers, VT_MARK_LAUNCHED, 0, err));
    return vt_cuda_check(x->cuda, x->cuda->driver.event_record(slot->end, x->lane.stream),
                         "recording an event", err);
}

/* Notes the time from the end of the last step to the beginning of this one. A failed step has no
 * such times. */
static void note_gap(cuda_executor *x, const result_slot *slot)
{
    float ms = 0;
    const result_slot *before = &x->slot[(x->waited + SLOTS - 1) % SLOTS];
    if (x->waited > 0 && x->cuda->driver.event_elapsed(&ms, before->end, slot->begin) == 0)
        x->gap_us[x->gaps.n++ % GAPS] = ms * 1000;
}

static vt_status finish_step(cuda_executor *x, result_slot *slot, vt_step_result *out, vt_err *err)
{
    float ms = 0;
    TRY(cuda_wait_event(x, slot->end, "waiting for a step", err));
    TRY(vt_cuda_check(x->cuda, x->cuda->driver.event_elapsed(&ms, slot->begin, slot->end),
                      "timing a step", err));
    note_gap(x, slot);
    int64_t now = vt_now_ns();
    slot->view = (vt_step_result){.id = slot->view.id,
                                  .token = slot->token,
                                  .logprob = slot->logprob,
                                  .top_id = slot->top_id,
                                  .top_logprob = slot->top_logprob,
                                  .hidden = slot->hidden,
                                  .hidden_dtype = x->prog->states ? x->prog->states->dtype : VT_F32,
                                  .begin_ns = now - (int64_t)((double)ms * 1e6),
                                  .end_ns = now};
    TRY(vt_observers_end(&x->observers, &slot->view, err));
    *out = slot->view;
    return VT_OK;
}

/* A failed step has ended too: if it stayed in flight, it would hide why later steps fail. */
static vt_status cuda_exec_wait(vt_executor *base, vt_step_result *out, vt_err *err)
{
    cuda_executor *x = (cuda_executor *)base;
    if (x->waited == x->launched)
        return vt_fail(err, VT_ERR_USAGE, "no step is in flight");
    vt_status status = vt_cuda_enter(x->cuda, err);
    result_slot *slot = &x->slot[x->waited % SLOTS];
    if (status == VT_OK && x->unsampled.step && x->unsampled.slot == slot)
        status = drop_unsampled(x, err);
    if (status == VT_OK)
        status = finish_step(x, slot, out, err);
    x->waited++;
    return status;
}

static const vt_program *cuda_exec_program(const vt_executor *base)
{
    return ((const cuda_executor *)base)->prog;
}

static int32_t cuda_exec_report(const vt_executor *base, vt_report *out, int32_t max)
{
    const cuda_executor *x = (const cuda_executor *)base;
    uint64_t n = x->gaps.n;
    const vt_report all[] = {
        {"packed_bytes", (double)x->weights->bytes, "B", NULL},
        {"kv_bytes", (double)vt_kv_cache_all_bytes(&x->kv), "B", NULL},
        {"kv_page_bytes", (double)vt_kv_cache_page_bytes(&x->kv), "B", NULL},
        {"kv_window_page_bytes", (double)vt_kv_cache_window_bytes(&x->kv), "B", NULL},
        {"kv_window_pages", x->kv.n_windows, "", NULL},
        {"state_bytes", (double)x->kv.state_bytes, "B", NULL},
        {"state_slots", x->kv.n_states, "", NULL},
        {"startup.open_ms", x->startup.open_ms, "ms", NULL},
        {"startup.weights_ms", x->startup.weights_ms, "ms", NULL},
        {"startup.compile_ms", x->startup.compile_ms, "ms", NULL},
        {"startup.capture_ms", x->startup.capture_ms, "ms", NULL},
        {"startup.kernels", vt_jit_count(x->cuda->jit), "", NULL},
        {"startup.graphs", x->n_graphs, "", NULL},
        {"startup.weight_bytes", (double)x->weights->bytes, "B", NULL},
        {"late_compiles", x->cuda->late_compiles, "", NULL},
        {"shared_items", (double)x->shared_items, "", NULL},
        {"step_gap", n ? (double)x->gap_us[(n - 1) % GAPS] : NAN, "us", &x->gaps},
    };
    enum { ALL = sizeof all / sizeof *all };
    for (int32_t i = 0; i < ALL && i < max; i++)
        out[i] = all[i];
    return ALL;
}

static int32_t cuda_sources(const vt_executor *base, vt_source *out, int32_t max)
{
    return vt_observers_sources(&((const cuda_executor *)base)->observers, out, max);
}

/* ---- making one ---- */

static void cuda_exec_free(vt_executor *base)
{
    cuda_executor *x = (cuda_executor *)base;
    if (!x)
        return;
    cuda_release(x);
    cuda_activity_drop(x);
    vt_observers_free(&x->observers);
    vt_cuda_close(x->cuda);
    free(x);
}

void vt_cuda_options_init(vt_cuda_options *o)
{
    *o = (vt_cuda_options){.graphs = true,
                           .pdl = vt_knob_int(&vt_knobs[VT_KNOB_CUDA_PDL]),
                           .one_graph = vt_knob_int(&vt_knobs[VT_KNOB_CUDA_ONE_GRAPH])};
}

cuda_executor *cuda_new(const vt_model *m, const vt_executor_config *config,
                        const vt_cuda_options *options, vt_err *err)
{
    cuda_executor *x = vt_calloc(1, sizeof *x);
    if (!x) {
        vt_fail(err, VT_ERR_MEMORY, "out of memory for the CUDA executor");
        return NULL;
    }
    x->base = (vt_executor){.name = "cuda",
                            .launch = cuda_exec_launch,
                            .sample = cuda_exec_sample,
                            .wait = cuda_exec_wait,
                            .free = cuda_exec_free,
                            .program = cuda_exec_program,
                            .sources = cuda_sources,
                            .report = cuda_exec_report,
                            .held = cuda_exec_held,
                            .pages = cuda_kv_pages,
                            .lost = cuda_lost,
                            .renew = cuda_renew,
                            .n_pool_slots = config->n_pool_slots};
    x->model = m;
    x->window = vt_kv_window(m);
    x->pairs = m->types != NULL;
    x->is = (vt_rank){0, 1};
    x->config = *config;
    x->options = *options;
    x->step_limit_ns = vt_knob_int(&vt_knobs[VT_KNOB_CUDA_STEP_LIMIT]) * 1000000000;
    x->max_graphs = MAX_GRAPHS;
    x->retry_steps = RETRY_STEPS;
    x->retry_ns = RETRY_NS;
    x->gaps = (vt_series){.value = x->gap_us, .capacity = GAPS};
    return x;
}

void cuda_made(cuda_executor *x)
{
    x->config.progress = NULL; /* it was borrowed */
    note_held(x);
}

vt_status vt_executor_cuda_check_kv(vt_dtype kv_dtype, vt_err *err)
{
    if (kv_dtype == VT_BF16 || kv_dtype == VT_FP8_E4M3)
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "kv-dtype %s is not there on CUDA, expected bf16 or fp8",
                   vt_dtype_get(kv_dtype)->name);
}

vt_status vt_executor_cuda_new(const vt_model *m, const vt_executor_config *config,
                               const vt_cuda_options *options, vt_executor **out, vt_err *err)
{
    vt_status status = vt_knob_check_all(err);
    if (status == VT_OK)
        status = vt_executor_cuda_check_kv(config->kv_dtype, err);
    if (status == VT_OK && config->n_ranks > 1)
        return cuda_ranks_new(m, config, options, out, err);
    cuda_executor *x = status == VT_OK ? cuda_new(m, config, options, err) : NULL;
    if (!x) {
        vt_cuda_options owned = *options;
        vt_cuda_options_close(&owned);
        return status == VT_OK ? VT_ERR_MEMORY : status;
    }
    x->cuda = options->device;
    x->startup.open_ms = options->open_ms;
    status = cuda_start_build(x, err);
    if (status != VT_OK) {
        cuda_exec_free(&x->base);
        return status;
    }
    cuda_made(x);
    *out = &x->base;
    return VT_OK;
}

static const vt_cuda *device_of(const vt_cuda_options *o, int32_t rank)
{
    return rank == 0 ? o->device : o->peer[rank];
}

/* Counts the ranks on the GPU of this rank. */
static int32_t ranks_beside(const vt_cuda_options *o, int32_t rank)
{
    int32_t n = 0;
    for (int32_t r = 0; r < o->n_ranks; r++)
        n += o->gpu[r] == o->gpu[rank];
    return n > 0 ? n : 1;
}

vt_status vt_executor_cuda_check_kv_bytes(const vt_model *m, const vt_cuda_options *o,
                                          int32_t max_context, int64_t bytes, vt_err *err)
{
    const vt_cuda *c = o->device;
    int32_t ranks = o->n_ranks > 1 ? o->n_ranks : 1;
    int64_t weights = (int64_t)vt_cuda_weights_bytes(m, max_context,
                                                     &(vt_rank){0, ranks, o->whole_experts});
    if (bytes <= ((int64_t)c->total_bytes / ranks_beside(o, 0) - weights) * ranks)
        return VT_OK;
    return vt_fail(err, VT_ERR_MEMORY,
                   "kv-memory is %.1f MiB and the weights of %s take %.1f MiB%s, but %s has only "
                   "%.1f MiB of GPU memory",
                   (double)bytes / 1048576, m->name, (double)weights / 1048576,
                   ranks > 1 ? " a rank" : "", c->name, (double)c->total_bytes / 1048576);
}

/* KV bytes of one rank. */
static vt_status kv_bytes_of_rank(const vt_model *m, const vt_cuda_options *o, int32_t rank,
                                  int32_t max_context, int64_t *bytes, vt_err *err)
{
    vt_cuda *c = (vt_cuda *)(uintptr_t)device_of(o, rank);
    int32_t ranks = o->n_ranks > 1 ? o->n_ranks : 1;
    size_t free_bytes = 0, total = 0;
    TRY(vt_cuda_enter(c, err));
    TRY(vt_cuda_check(c, c->driver.mem_info(&free_bytes, &total), "asking for free GPU memory",
                      err));
    int64_t weights = (int64_t)vt_cuda_weights_bytes(m, max_context,
                                                     &(vt_rank){rank, ranks, o->whole_experts});
    int64_t mine = (int64_t)free_bytes / ranks_beside(o, rank);
    *bytes = mine / 10 * 9 - weights - ((int64_t)2 << 30);
    if (*bytes <= 0)
        return vt_fail(
            err, VT_ERR_MEMORY,
            "%s: %.2f GiB of weights%s and 2 GiB to work in leave no room for KV in nine "
            "tenths of the GPU's %.1f GiB of free memory; kv-memory sets its size",
            m->name, (double)weights / (1 << 30), ranks > 1 ? " of a rank" : "",
            (double)free_bytes / (1 << 30));
    return VT_OK;
}

vt_status vt_executor_cuda_kv_bytes(const vt_model *m, const vt_cuda_options *o,
                                    int32_t max_context, int64_t *bytes, vt_err *err)
{
    int64_t least = INT64_MAX, one = 0;
    int32_t ranks = o->n_ranks > 1 ? o->n_ranks : 1;
    for (int32_t r = 0; r < ranks; r++) {
        TRY(kv_bytes_of_rank(m, o, r, max_context, &one, err));
        least = one < least ? one : least;
    }
    *bytes = least * ranks;
    return vt_cuda_enter(o->device, err);
}

void vt_cuda_options_close(vt_cuda_options *o)
{
    vt_cuda_close(o->device);
    o->device = NULL;
    for (int32_t r = 1; r < COMM_GPU_RANKS; r++) {
        vt_cuda_close(o->peer[r]);
        o->peer[r] = NULL;
    }
}

vt_status vt_executor_cuda_collect(const vt_model *m, const vt_limits *limits, vt_dtype kv_dtype,
                                   const char *arch, int32_t level, bool stamps, vt_cuda **out,
                                   vt_err *err)
{
    vt_executor_config config = {
        .limits = *limits, .n_pages = 16, .n_pool_slots = limits->max_seqs, .kv_dtype = kv_dtype};
    vt_cuda_options options = {.pdl = level >= 90};
    cuda_executor *x = cuda_new(m, &config, &options, err);
    if (!x)
        return VT_ERR_MEMORY;
    x->stamped.on = stamps;
    vt_status status = vt_cuda_offline(arch, level, 132, &x->cuda, err);
    if (status == VT_OK)
        status = vt_cuda_weights_load(NULL, m, limits->max_context, 1, &x->weights, err);
    if (status == VT_OK)
        status = cuda_start_describe(x, err);
    if (status == VT_OK)
        status = cuda_start_collect(x, err);
    if (status == VT_OK) {
        *out = x->cuda;
        x->cuda = NULL;
    }
    cuda_exec_free(&x->base);
    return status;
}
