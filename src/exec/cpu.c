/* The CPU executor: one program, one team, steps in order.
 *
 *   launch ──> queue of at most 2 steps ──> run_step on the team ──> results[step % 4] ──> wait
 *
 * Without `async` a step runs inside wait(), on the caller's thread, and no thread is started but
 * the team's. With it a runner thread (the team's worker 0) runs steps as they are launched, and
 * the caller prepares the next one meanwhile.
 *
 * Inside a step every worker walks the same list of calls and meets the others at a barrier after
 * each. Behind the barrier all workers see what the call wrote. Results are copied out of the
 * program's tensors, because the next step may already be writing there when the engine reads
 * them. */
#include "exec/executor.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/use.h"
#include "exec/program.h"

enum {
    MAX_IN_FLIGHT = 2,
    RESULTS = 4,
    RING_USES = 1 << 13 /* one a step, or one for several steps shorter than VT_USE_EVERY_NS */
};

/* What a worker records. Each is written by that worker alone. */
typedef struct cpu_recorder {
    vt_span_rings spans;
    vt_trace_ring uses;
    _Alignas(VT_CACHE_LINE) vt_use use;
} cpu_recorder;

typedef struct cpu_result {
    int32_t *token, *top_id;
    float *logprob, *top_logprob;
    vt_step_result view;
} cpu_result;

typedef struct cpu_executor {
    vt_executor base;
    const vt_model *model;
    vt_team *team;
    vt_weights *weights;
    vt_kv_cache kv;
    vt_program *prog;
    int32_t *token_pool;
    atomic_int *ticket; /* [n_calls] */
    void *workspace;
    char *plans; /* the step's plans, one after the other */
    size_t plan_at[VT_MAX_PLANS];
    int32_t items[VT_MAX_PLANS]; /* how many items each of these plans has */
    cpu_recorder *recorder;      /* [n_workers] */
    const vt_step *current;      /* the step the team is running */
    cpu_result result[RESULTS];
    /* launched >= finished >= waited; guarded by lock when async */
    uint64_t launched, finished, waited;
    const vt_step *queue[MAX_IN_FLIGHT];
    bool async, quit;
    pthread_t runner;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} cpu_executor;

/* Runs a call on this worker. */
static void run_call(cpu_executor *x, vt_lane *lane, int32_t i)
{
    const vt_call *c = &x->prog->call[i];
    int16_t plan = c->plan[0]; /* a CPU's calls have one row for all sizes */
    lane->plan = plan >= 0 ? x->plans + x->plan_at[plan] : NULL;
    lane->items = plan >= 0 ? x->items[plan] : 0;
    lane->ticket = &x->ticket[i];
    c->choice[0].impl->run(c->args, lane);
}

/* Where this worker's spans of the current step go; NULL: its op calls are not recorded. */
static vt_trace_ring *spans_of_step(cpu_executor *x, int32_t worker)
{
    const vt_batch *b = &x->current->batch;
    bool prompts = b->n_tokens > b->n_decode;
    return prompts || vt_spans_on(x->current->id)
               ? vt_spans_of(&x->recorder[worker].spans, x->current->id, prompts)
               : NULL;
}

/* One worker's walk through the program. */
static void run_calls(void *arg, int32_t worker)
{
    cpu_executor *x = arg;
    vt_program *p = x->prog;
    cpu_recorder *recorder = &x->recorder[worker];
    vt_lane lane = {.target = &p->target,
                    .size = &p->size,
                    .team = x->team,
                    .worker = worker,
                    .n_workers = vt_team_size(x->team),
                    .workspace = x->workspace,
                    .workspace_bytes = p->target.workspace_bytes};
    vt_use_begin(&recorder->use, x->current->id);
    vt_trace_ring *ring = spans_of_step(x, worker);
    bool alone = lane.n_workers == 1; /* it never waits: one look at the clock is enough */
    int64_t base = x->result[x->finished % RESULTS].view.begin_ns, begin = ring ? vt_now_ns() : 0;
    if (ring)
        vt_trace_base(ring, x->current->id, base);
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!vt_call_active(&p->call[i], &p->size))
            continue;
        run_call(x, &lane, i);
        int64_t ran = ring ? vt_now_ns() : 0;
        vt_team_barrier(x->team, worker);
        if (!ring)
            continue;
        int64_t met = alone ? ran : vt_now_ns();
        vt_trace_met(ring, base, i, begin, ran, met);
        begin = met;
    }
    vt_use_end(&recorder->use, x->current->id, &recorder->uses);
}

static void make_plans(cpu_executor *x)
{
    vt_program *p = x->prog;
    bool used[VT_MAX_PLANS];
    vt_program_plans_used(p, &p->size, used);
    for (int32_t i = 0; i < p->n_plans; i++) {
        const vt_host_plan *plan = p->plan[i].plan;
        const void *args = p->plan[i].args;
        if (!used[i])
            continue;
        int32_t items = vt_plan_items(plan, args, &p->target, &p->size, &p->batch);
        x->items[i] = plan->fill(args, &p->target, &p->size, &p->batch, items,
                                 x->plans + x->plan_at[i], NULL);
    }
}

static void copy_results(cpu_executor *x, cpu_result *r, int32_t n_rows)
{
    size_t n = (size_t)n_rows, top = n * VT_MAX_TOP_LOGPROBS;
    memcpy(r->token, x->prog->token->data, n * sizeof *r->token);
    memcpy(r->logprob, x->prog->logprob->data, n * sizeof *r->logprob);
    memcpy(r->top_id, x->prog->top_id->data, top * sizeof *r->top_id);
    memcpy(r->top_logprob, x->prog->top_logprob->data, top * sizeof *r->top_logprob);
}

static void run_step(cpu_executor *x, const vt_step *step)
{
    cpu_result *r = &x->result[x->finished % RESULTS];
    r->view.begin_ns = vt_now_ns();
    x->current = step;
    vt_size size = vt_size_of(&step->batch);
    vt_program_bind(x->prog, &step->batch, &size, step->rows);
    make_plans(x);
    for (int32_t i = 0; i < x->prog->n_calls; i++)
        atomic_store_explicit(&x->ticket[i], 0, memory_order_relaxed);
    vt_team_run(x->team, run_calls, x);
    copy_results(x, r, step->batch.n_rows);
    r->view = (vt_step_result){.id = step->id,
                               .token = r->token,
                               .logprob = r->logprob,
                               .top_id = r->top_id,
                               .top_logprob = r->top_logprob,
                               .begin_ns = r->view.begin_ns,
                               .end_ns = vt_now_ns()};
}

static void *runner_main(void *arg)
{
    cpu_executor *x = arg;
    pthread_mutex_lock(&x->lock);
    for (;;) {
        while (!x->quit && x->finished == x->launched)
            pthread_cond_wait(&x->changed, &x->lock);
        if (x->finished == x->launched)
            break;
        const vt_step *step = x->queue[x->finished % MAX_IN_FLIGHT];
        pthread_mutex_unlock(&x->lock);
        run_step(x, step);
        pthread_mutex_lock(&x->lock);
        x->finished++;
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

static vt_status cpu_launch(vt_executor *base, const vt_step *step, vt_err *err)
{
    cpu_executor *x = (cpu_executor *)base;
    TRY(vt_step_check(&x->prog->target.limits, step, err));
    pthread_mutex_lock(&x->lock);
    bool full = x->launched - x->waited >= MAX_IN_FLIGHT;
    if (!full) {
        x->queue[x->launched++ % MAX_IN_FLIGHT] = step;
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    if (full)
        return vt_fail(err, VT_ERR_USAGE, "step %llu: %d steps are in flight already",
                       (unsigned long long)step->id, MAX_IN_FLIGHT);
    return VT_OK;
}

static vt_status cpu_wait(vt_executor *base, vt_step_result *out, vt_err *err)
{
    cpu_executor *x = (cpu_executor *)base;
    if (x->waited == x->launched)
        return vt_fail(err, VT_ERR_USAGE, "no step is in flight");
    if (x->async) {
        pthread_mutex_lock(&x->lock);
        while (x->finished == x->waited)
            pthread_cond_wait(&x->changed, &x->lock);
        pthread_mutex_unlock(&x->lock);
    } else {
        run_step(x, x->queue[x->finished % MAX_IN_FLIGHT]);
        x->finished++;
    }
    *out = x->result[x->waited++ % RESULTS].view;
    return VT_OK;
}

static const vt_program *cpu_program(const vt_executor *base)
{
    return ((const cpu_executor *)base)->prog;
}

/* ---- sources and reports ---- */

static vt_status cpu_roofs(const void *owner, bool again, vt_roofs *out, vt_err *err)
{
    const cpu_executor *x = owner;
    int32_t threads = vt_team_size(x->team);
    return again ? vt_roofs_again(threads, x->model->weight_bytes, out, err)
                 : vt_roofs_get(threads, x->model->weight_bytes, out, err);
}

static int32_t cpu_sources(const vt_executor *base, vt_source *out, int32_t max)
{
    const cpu_executor *x = (const cpu_executor *)base;
    int32_t n = vt_team_size(x->team);
    for (int32_t w = 0; w < n && w < max; w++) {
        out[w] = (vt_source){.kind = VT_SOURCE_WORKER,
                             .spans = &x->recorder[w].spans,
                             .uses = &x->recorder[w].uses,
                             .device = {.level = vt_isa_name(x->prog->target.isa)},
                             .clock_error_ns = NAN,
                             .event_ns = NAN,
                             .read_ns = NAN,
                             .owner = x,
                             .roofs = cpu_roofs};
        snprintf(out[w].name, sizeof out[w].name, "worker %d", w);
    }
    return n;
}

static int32_t cpu_report(const vt_executor *base, vt_report *out, int32_t max)
{
    const cpu_executor *x = (const cpu_executor *)base;
    double page = (double)vt_kv_page_bytes(&x->kv.shape, x->kv.page_size);
    const vt_report all[] = {{"packed_bytes", (double)x->weights->packed_bytes, "B", NULL},
                             {"kv_bytes", page * x->kv.n_pages, "B", NULL},
                             {"kv_page_bytes", page, "B", NULL},
                             {"state_bytes", (double)x->kv.state_bytes, "B", NULL},
                             {"state_slots", x->kv.n_states, "", NULL}};
    enum { ALL = sizeof all / sizeof *all };
    for (int32_t i = 0; i < ALL && i < max; i++)
        out[i] = all[i];
    return ALL;
}

static void cpu_free(vt_executor *base)
{
    cpu_executor *x = (cpu_executor *)base;
    if (!x)
        return;
    if (x->async) {
        pthread_mutex_lock(&x->lock);
        x->quit = true;
        pthread_cond_broadcast(&x->changed);
        pthread_mutex_unlock(&x->lock);
        pthread_join(x->runner, NULL);
    }
    for (int32_t w = 0; x->recorder && w < vt_team_size(x->team); w++) {
        vt_spans_release(&x->recorder[w].spans);
        vt_trace_release(&x->recorder[w].uses);
        vt_use_release(&x->recorder[w].use);
    }
    for (int i = 0; i < RESULTS; i++) {
        free(x->result[i].token);
        free(x->result[i].top_id);
        free(x->result[i].logprob);
        free(x->result[i].top_logprob);
    }
    free(x->recorder);
    free(x->workspace);
    free(x->plans);
    free(x->ticket);
    free(x->token_pool);
    vt_program_free(x->prog);
    vt_kv_cache_release(&x->kv);
    vt_weights_free(x->weights);
    vt_team_free(x->team);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* Gives every plan room for the largest step. Returns the bytes of all. */
static size_t place_plans(cpu_executor *x, const vt_limits *limits)
{
    const vt_target *t = &x->prog->target;
    vt_size most = vt_size_most(limits);
    size_t bytes = 0;
    for (int32_t i = 0; i < x->prog->n_plans; i++) {
        const vt_program_plan *p = &x->prog->plan[i];
        int32_t items = vt_plan_items(p->plan, p->args, t, &most, NULL);
        x->plan_at[i] = bytes;
        bytes += vt_round_up(p->plan->bytes(p->args, t, &most, items), VT_CACHE_LINE);
    }
    return bytes;
}

/* Everything a step touches is reserved here: the step path allocates nothing. */
static vt_status reserve(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    size_t rows = (size_t)c->limits.max_rows, n = (size_t)vt_team_size(x->team);
    bool ok = true;
    for (int i = 0; i < RESULTS; i++) {
        cpu_result *r = &x->result[i];
        r->token = vt_calloc(rows, sizeof *r->token);
        r->logprob = vt_calloc(rows, sizeof *r->logprob);
        r->top_id = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *r->top_id);
        r->top_logprob = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *r->top_logprob);
        ok = ok && r->token && r->logprob && r->top_id && r->top_logprob;
    }
    x->token_pool = vt_calloc((size_t)c->n_pool_slots, sizeof *x->token_pool);
    x->ticket = vt_calloc((size_t)x->prog->n_calls, sizeof *x->ticket);
    x->workspace = vt_aligned_alloc(VT_CACHE_LINE, x->prog->target.workspace_bytes);
    size_t plan_bytes = place_plans(x, &c->limits);
    x->plans = vt_aligned_alloc(VT_CACHE_LINE, plan_bytes + VT_CACHE_LINE);
    x->recorder = vt_aligned_alloc(VT_CACHE_LINE, n * sizeof *x->recorder);
    if (x->recorder)
        memset(x->recorder, 0, n * sizeof *x->recorder);
    if (!ok || !x->token_pool || !x->ticket || !x->workspace || !x->plans || !x->recorder)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the CPU executor");
    x->prog->token_pool = x->token_pool;
    for (size_t w = 0; w < n; w++)
        vt_use_init(&x->recorder[w].use);
    for (size_t w = 0; w < n; w++) { /* a base, and a span a call */
        TRY(vt_spans_init(&x->recorder[w].spans, x->prog->n_calls + 1, err));
        TRY(vt_trace_init(&x->recorder[w].uses, sizeof(vt_use_event), RING_USES, err));
    }
    return VT_OK;
}

static vt_status build(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    vt_kv_shape shape;
    vt_isa level = vt_cpu_get()->level;
    TRY(vt_team_new(c->n_threads, &x->team, err));
    vt_target target = vt_target_cpu(level, &c->limits);
    target.limits.n_workers = c->n_threads;
    memcpy(target.backend, c->backend, sizeof target.backend);
    target.n_backends = c->n_backends;
    TRY(vt_weights_load_cpu(x->model, x->team, &target, c->progress, &x->weights, err));
    vt_kv_shape_of(x->model, c->kv_dtype, &shape);
    TRY(vt_kv_cache_init_cpu(&x->kv, &shape, c->n_pages, c->limits.page_size, err));
    TRY(vt_kv_cache_add_states_cpu(&x->kv, c->n_states, err));
    vt_program_config config = {.target = target, .activation = VT_F32};
    TRY(vt_program_build(x->model, x->weights, &x->kv, &config, &x->prog, err));
    TRY(reserve(x, c, err));
    if (c->async) {
        int rc = pthread_create(&x->runner, NULL, runner_main, x);
        if (rc != 0)
            return vt_fail(err, VT_ERR_MEMORY,
                           "the step runner thread could not be started (error %d)", rc);
        x->async = true;
    }
    return VT_OK;
}

vt_status vt_executor_cpu_new(const vt_model *m, const vt_executor_config *config,
                              vt_executor **out, vt_err *err)
{
    cpu_executor *x = vt_calloc(1, sizeof *x);
    if (!x)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the CPU executor");
    x->base = (vt_executor){.name = "cpu",
                            .launch = cpu_launch,
                            .wait = cpu_wait,
                            .free = cpu_free,
                            .program = cpu_program,
                            .sources = cpu_sources,
                            .report = cpu_report,
                            .n_pool_slots = config->n_pool_slots};
    x->model = m;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    vt_status status = build(x, config, err);
    if (status != VT_OK) {
        cpu_free(&x->base);
        return status;
    }
    *out = &x->base;
    return VT_OK;
}
