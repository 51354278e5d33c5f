/* The CPU executor: steps in order, on one team or on several ranks.
 *
 *   launch ──> queue of at most 2 steps ──> run_step ──> results[step % 4] ──> wait
 *
 * A held step waits behind its forward pass until sample() says that the rows have their masks.
 * Without `async` a step runs inside wait(), on the caller's thread, and no thread is started but
 * the team's. With it a runner thread (the team's worker 0) runs steps as they are launched, and
 * the caller prepares the next one meanwhile. cpu_rank.c has a step's walk.
 *
 * Ranks (docs/ranks.md) are teams with a shard each. A thread a rank is worker 0 of its team; these
 * threads are a team too, of which the runner is worker 0. wait() watches the flags of the ranks:
 * one that its peers have waited for too long has failed. Its threads cannot be ended from outside,
 * so as long as one hangs the executor is lost, and cpu_free leaves its memory to it.
 *
 * Results are copied out of the program's tensors, because the next step may already be writing
 * there when the engine reads them. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/knob.h"
#include "exec/cpu_inside.h"
#include "model/load.h"

enum { TICKS_PER_S = 10 };

static void copy_results(cpu_executor *x, cpu_result *r, int32_t n_rows)
{
    const vt_program *p = x->rank[0].prog;
    size_t n = (size_t)n_rows, top = n * VT_MAX_TOP_LOGPROBS;
    if (r->hidden) {
        int64_t rows = r->token ? p->states->dim[0] : vt_segment_count(&p->batch);
        memcpy(r->hidden, p->states->data, (size_t)(rows * p->states->dim[1]) * sizeof *r->hidden);
    }
    if (!r->token)
        return;
    memcpy(r->token, p->token->data, n * sizeof *r->token);
    memcpy(r->logprob, p->logprob->data, n * sizeof *r->logprob);
    memcpy(r->top_id, p->top_id->data, top * sizeof *r->top_id);
    memcpy(r->top_logprob, p->top_logprob->data, top * sizeof *r->top_logprob);
}

/* Ranks choose each token for themselves. One that chose another than rank 0 has failed. */
static void compare_tokens(cpu_executor *x, int32_t n_rows)
{
    const vt_tensor *token = x->rank[0].prog->token;
    for (int32_t k = 1; k < x->n_ranks && token; k++)
        if (memcmp(token->data, x->rank[k].prog->token->data, (size_t)n_rows * sizeof(int32_t)) !=
            0)
            cpu_rank_fail(&x->rank[k], CPU_FAULT_TOKEN);
}

static void run_rank(void *arg, int32_t rank)
{
    cpu_executor *x = arg;
    x->rank[rank].masks_at = x->masks_at[x->finished % CPU_IN_FLIGHT];
    cpu_rank_run(&x->rank[rank], x->queue[x->finished % CPU_IN_FLIGHT],
                 x->result[x->finished % CPU_RESULTS].view.begin_ns);
}

static void run_step(cpu_executor *x, const vt_step *step)
{
    cpu_result *r = &x->result[x->finished % CPU_RESULTS];
    int32_t n_rows = step->batch.n_rows; /* *step may be gone when a rank that hung comes back */
    uint64_t id = step->id;
    r->view.begin_ns = vt_now_ns();
    if (x->leaders) {
        vt_team_run(x->leaders, run_rank, x);
        compare_tokens(x, n_rows);
    } else {
        run_rank(x, 0);
    }
    copy_results(x, r, n_rows);
    r->view = (vt_step_result){.id = id,
                               .token = r->token,
                               .logprob = r->logprob,
                               .top_id = r->top_id,
                               .top_logprob = r->top_logprob,
                               .hidden = r->hidden,
                               .hidden_dtype = VT_F32,
                               .begin_ns = r->view.begin_ns,
                               .end_ns = vt_now_ns()};
}

static bool failed(const cpu_executor *x) { return x->comm && atomic_load(&x->comm->failed) >= 0; }

static void *runner_main(void *arg)
{
    cpu_executor *x = arg;
    if (x->seat)
        cpu_sit(x->seat[0]);
    pthread_mutex_lock(&x->lock);
    for (;;) {
        while (!x->quit && x->finished == x->launched)
            pthread_cond_wait(&x->changed, &x->lock);
        if (x->finished == x->launched)
            break;
        const vt_step *step = x->queue[x->finished % CPU_IN_FLIGHT];
        pthread_mutex_unlock(&x->lock);
        if (!failed(x)) /* of a failed executor, steps that were launched are dropped */
            run_step(x, step);
        pthread_mutex_lock(&x->lock);
        x->finished++;
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* ---- the deadline of ranks ---- */

/* Says which rank failed, and how. */
static vt_status tell_failure(const cpu_executor *x, vt_err *err)
{
    int32_t r = atomic_load(&x->comm->failed);
    const cpu_rank *k = &x->rank[r];
    int fault = atomic_load(&k->fault);
    if (fault == CPU_FAULT_TOKEN)
        return vt_fail(err, VT_ERR_DEVICE, "rank %d of %d chose another token than rank 0", r,
                       x->n_ranks);
    return vt_fail(err, VT_ERR_DEVICE, "rank %d of %d %s %s", r, x->n_ranks,
                   fault == CPU_FAULT_HANG ? "hangs in" : "failed in",
                   k->prog->call[atomic_load(&k->call)].label);
}

/* The flags of the ranks when they last changed. */
typedef struct watch {
    unsigned seen[VT_MAX_RANKS];
    int64_t ticks; /* since then */
} watch;

/* Looks at the flags, ten times a second. A rank behind others for the deadline has failed. */
static void look_at_ranks(cpu_executor *x, watch *w)
{
    int32_t last = 0, first = 0;
    bool moved = false;
    for (int32_t r = 0; r < x->n_ranks; r++) {
        unsigned now = atomic_load(&x->comm->flag[r].value);
        moved = moved || now != w->seen[r];
        w->seen[r] = now;
        last = (int)(now - w->seen[last]) < 0 ? r : last;
        first = (int)(now - w->seen[first]) > 0 ? r : first;
    }
    w->ticks = moved || w->seen[last] == w->seen[first] ? 0 : w->ticks + 1;
    if (x->deadline_ticks > 0 && w->ticks > x->deadline_ticks)
        cpu_rank_fail(&x->rank[last], CPU_FAULT_HANG);
}

/* Waits until a step has finished that was not waited for, or all that were launched if `all`. With
 * ranks it gives up on a rank that hangs: returns false, `grace` ticks after it failed. */
static bool await_steps(cpu_executor *x, bool all, int64_t grace) /* lock held */
{
    watch w = {0};
    while (all ? x->finished < x->launched : x->finished == x->waited) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 1000000000 / TICKS_PER_S;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        bool tick = pthread_cond_timedwait(&x->changed, &x->lock, &until) == ETIMEDOUT;
        if (!tick || !x->comm)
            continue;
        if (failed(x) && grace-- <= 0)
            return false;
        if (!failed(x))
            look_at_ranks(x, &w);
    }
    return true;
}

static bool cpu_lost(vt_executor *base) { return failed((cpu_executor *)base); }

/* Makes a group whose rank failed usable again, if none of its threads hangs any more. */
static vt_status cpu_renew(vt_executor *base, vt_err *err)
{
    cpu_executor *x = (cpu_executor *)base;
    pthread_mutex_lock(&x->lock);
    bool ended = await_steps(x, true, TICKS_PER_S);
    vt_status status = ended ? VT_OK : tell_failure(x, err);
    for (int32_t r = 0; ended && r < x->n_ranks; r++) {
        x->rank[r].comm.base = 0;
        atomic_store(&x->rank[r].fault, CPU_FAULT_NONE);
        atomic_store(&x->comm->flag[r].value, 0);
    }
    if (ended) {
        x->waited = x->finished;
        atomic_store(&x->comm->failed, -1);
    }
    pthread_mutex_unlock(&x->lock);
    return status;
}

/* ---- launch and wait ---- */

static vt_status cpu_launch(vt_executor *base, const vt_step *step, vt_err *err)
{
    cpu_executor *x = (cpu_executor *)base;
    if (failed(x))
        return tell_failure(x, err);
    TRY(vt_step_check(&x->rank[0].prog->target.limits, step, err));
    pthread_mutex_lock(&x->lock);
    bool full = x->launched - x->waited >= CPU_IN_FLIGHT;
    if (!full) {
        x->n_held += step->held;
        x->masks_at[x->launched % CPU_IN_FLIGHT] = x->n_held;
        x->queue[x->launched++ % CPU_IN_FLIGHT] = step;
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    if (full)
        return vt_fail(err, VT_ERR_USAGE, "step %llu: %d steps are in flight already",
                       (unsigned long long)step->id, CPU_IN_FLIGHT);
    return VT_OK;
}

static vt_status cpu_sample(vt_executor *base, vt_err *err)
{
    cpu_executor *x = (cpu_executor *)base;
    if (vt_word_reached(&x->masks, x->n_held))
        return vt_fail(err, VT_ERR_USAGE, "no step is held");
    vt_word_set(&x->masks, x->n_held);
    return VT_OK;
}

static vt_status cpu_wait(vt_executor *base, vt_step_result *out, vt_err *err)
{
    cpu_executor *x = (cpu_executor *)base;
    vt_status status = VT_OK;
    if (x->waited == x->launched)
        return vt_fail(err, VT_ERR_USAGE, "no step is in flight");
    unsigned masks = x->masks_at[x->waited % CPU_IN_FLIGHT];
    if (!vt_word_reached(&x->masks, masks)) /* it is dropped */
        vt_word_set(&x->masks, masks);
    if (x->async) {
        pthread_mutex_lock(&x->lock);
        await_steps(x, false, TICKS_PER_S);
        if (failed(x))
            status = tell_failure(x, err);
        pthread_mutex_unlock(&x->lock);
    } else {
        run_step(x, x->queue[x->finished % CPU_IN_FLIGHT]);
        x->finished++;
    }
    *out = x->result[x->waited++ % CPU_RESULTS].view;
    return status;
}

static const vt_program *cpu_program(const vt_executor *base)
{
    return ((const cpu_executor *)base)->rank[0].prog;
}

/* ---- sources and reports ---- */

static vt_status cpu_roofs(const void *owner, bool again, vt_roofs *out, vt_err *err)
{
    const cpu_executor *x = owner;
    int32_t threads = x->n_ranks * vt_team_size(x->rank[0].team);
    return again ? vt_roofs_again(threads, x->model->weight_bytes, out, err)
                 : vt_roofs_get(threads, x->model->weight_bytes, out, err);
}

static int32_t cpu_sources(const vt_executor *base, vt_source *out, int32_t max)
{
    const cpu_executor *x = (const cpu_executor *)base;
    int32_t each = vt_team_size(x->rank[0].team), n = x->n_ranks * each;
    for (int32_t i = 0; i < n && i < max; i++) {
        const cpu_rank *k = &x->rank[i / each];
        int32_t w = i % each;
        out[i] = (vt_source){.kind = VT_SOURCE_WORKER,
                             .spans = &k->recorder[w].spans,
                             .uses = &k->recorder[w].uses,
                             .rank = k->is.index,
                             .n_ranks = x->n_ranks,
                             .device = {.level = vt_isa_name(k->prog->target.isa)},
                             .clock_error_ns = NAN,
                             .event_ns = NAN,
                             .read_ns = NAN,
                             .owner = x,
                             .roofs = cpu_roofs};
        if (x->n_ranks == 1)
            snprintf(out[i].name, sizeof out[i].name, "worker %d", w);
        else
            snprintf(out[i].name, sizeof out[i].name, "rank %d worker %d", (uint16_t)k->is.index,
                     (uint16_t)w);
    }
    return n;
}

static int32_t cpu_report(const vt_executor *base, vt_report *out, int32_t max)
{
    const cpu_executor *x = (const cpu_executor *)base;
    const vt_kv_cache *kv = &x->rank[0].kv;
    double page = 0, window = 0, packed = 0, states = 0;
    for (int32_t r = 0; r < x->n_ranks; r++) {
        const cpu_rank *k = &x->rank[r];
        page += (double)vt_kv_cache_page_bytes(&k->kv);
        window += (double)vt_kv_cache_window_bytes(&k->kv);
        packed += (double)k->weights->packed_bytes;
        states += (double)k->kv.state_bytes;
    }
    const vt_report all[] = {{"packed_bytes", packed, "B", NULL},
                             {"kv_bytes", page * kv->n_pages + window * kv->n_windows, "B", NULL},
                             {"kv_page_bytes", page, "B", NULL},
                             {"kv_window_page_bytes", window, "B", NULL},
                             {"kv_window_pages", kv->n_windows, "", NULL},
                             {"state_bytes", states, "B", NULL},
                             {"state_slots", kv->n_states, "", NULL}};
    enum { ALL = sizeof all / sizeof *all };
    for (int32_t i = 0; i < ALL && i < max; i++)
        out[i] = all[i];
    return ALL;
}

static int32_t cpu_ranks(const vt_executor *base, vt_rank_use *out, int32_t max)
{
    const cpu_executor *x = (const cpu_executor *)base;
    for (int32_t r = 0; r < x->n_ranks && r < max; r++) {
        const cpu_rank *k = &x->rank[r];
        int64_t page = (int64_t)vt_kv_cache_page_bytes(&k->kv),
                window = (int64_t)vt_kv_cache_window_bytes(&k->kv);
        out[r] = (vt_rank_use){
            .weight_bytes = k->weights->packed_bytes,
            .kv_bytes = page * k->kv.n_pages + window * k->kv.n_windows,
            .wait_ns = atomic_load_explicit(&k->comm_wait_ns, memory_order_relaxed),
            .wait_steps = -1};
    }
    return x->n_ranks;
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
        bool ended = !failed(x) || await_steps(x, true, TICKS_PER_S);
        pthread_mutex_unlock(&x->lock);
        if (!ended) { /* a thread that hangs still has all this memory */
            pthread_detach(x->runner);
            return;
        }
        pthread_join(x->runner, NULL);
    }
    vt_team_free(x->leaders);
    for (int32_t r = 0; x->rank && r < x->n_ranks; r++)
        cpu_rank_release(&x->rank[r]);
    free(x->rank);
    free(x->seat);
    vt_comm_free(x->comm);
    for (int i = 0; i < CPU_RESULTS; i++) {
        free(x->result[i].token);
        free(x->result[i].top_id);
        free(x->result[i].logprob);
        free(x->result[i].top_logprob);
        free(x->result[i].hidden);
    }
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static vt_status reserve_results(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    const vt_tensor *states = x->rank[0].prog->states;
    size_t rows = (size_t)c->limits.max_rows, n = 0;
    if (states)
        n = (states->follows == VT_FOLLOWS_TOKENS ? (size_t)c->limits.max_tokens : rows) *
            (size_t)states->dim[1];
    bool ok = true;
    for (int i = 0; i < CPU_RESULTS; i++) {
        cpu_result *r = &x->result[i];
        if (states) {
            r->hidden = vt_calloc(n, sizeof *r->hidden);
            ok = ok && r->hidden;
        }
        if (c->end == VT_END_POOLED)
            continue;
        r->token = vt_calloc(rows, sizeof *r->token);
        r->logprob = vt_calloc(rows, sizeof *r->logprob);
        r->top_id = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *r->top_id);
        r->top_logprob = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *r->top_logprob);
        ok = ok && r->token && r->logprob && r->top_id && r->top_logprob;
    }
    return ok ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for the CPU executor");
}

/* ---- making ---- */

typedef struct build_job {
    cpu_executor *x;
    const vt_executor_config *config;
    vt_status status[VT_MAX_RANKS];
    vt_err err[VT_MAX_RANKS];
} build_job;

static void build_rank(void *arg, int32_t r)
{
    build_job *job = arg;
    job->status[r] = cpu_rank_build(&job->x->rank[r], job->x->model, job->config, job->x->comm,
                                    &job->err[r]);
}

/* Makes the threads: all teams at once, for a thread inherits the CPUs of the one that makes it. */
static vt_status make_teams(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    int32_t n_threads = c->n_threads;
    vt_team_seat seat = {.step = n_threads, .of = x->n_ranks * n_threads};
    for (int32_t r = 0; r < x->n_ranks; r++) {
        x->rank[r].is = (vt_rank){r, x->n_ranks, c->whole_experts};
        x->rank[r].masks = &x->masks;
        TRY(cpu_rank_team(&x->rank[r], n_threads, err));
    }
    if (x->n_ranks == 1)
        return VT_OK;
    TRY(vt_comm_new(x->n_ranks, &x->comm, err));
    return vt_team_new_at(x->n_ranks, &seat, &x->leaders, err);
}

static vt_status build_ranks(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    if (!x->leaders)
        return cpu_rank_build(&x->rank[0], x->model, c, NULL, err);
    build_job *job = vt_calloc(1, sizeof *job);
    if (!job)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the CPU executor");
    *job = (build_job){.x = x, .config = c};
    vt_status status = vt_model_host_weights(x->model, err);
    if (status == VT_OK)
        vt_team_run(x->leaders, build_rank, job);
    if (status == VT_OK)
        vt_model_host_weights_done(x->model, false); /* each rank had a use of its own */
    for (int32_t r = 0; r < x->n_ranks && status == VT_OK; r++) {
        status = job->status[r];
        if (status != VT_OK)
            vt_fail(err, status, "rank %d: %s", r, job->err[r].message);
    }
    free(job);
    return status;
}

/* Builds the ranks on their nodes. The caller's thread gets its own CPUs back. */
static vt_status build_seated(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    cpu_set_t own;
    bool known = sched_getaffinity(0, sizeof own, &own) == 0;
    if (known)
        cpu_sit_all(x, c->n_threads);
    vt_status status = build_ranks(x, c, err);
    if (x->seat)
        sched_setaffinity(0, sizeof own, &own);
    return status;
}

static vt_status build(cpu_executor *x, const vt_executor_config *c, vt_err *err)
{
    const vt_knob_row *limit = &vt_knobs[VT_KNOB_RANK_LIMIT];
    x->n_ranks = c->n_ranks > 1 ? c->n_ranks : 1;
    TRY(vt_ranks_check(x->model, x->n_ranks, c->whole_experts, err));
    TRY(vt_knob_check(limit, err));
    x->deadline_ticks = vt_knob_int(limit) * TICKS_PER_S;
    x->rank = vt_calloc((size_t)x->n_ranks, sizeof *x->rank);
    if (!x->rank)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the CPU executor");
    TRY(make_teams(x, c, err));
    TRY(build_seated(x, c, err));
    for (int32_t r = 0; r + 1 < x->n_ranks; r++)
        x->rank[r].prog->next_rank = x->rank[r + 1].prog;
    TRY(reserve_results(x, c, err));
    if (c->async || x->n_ranks > 1) { /* a rank that hangs must not hang the caller */
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
                            .sample = cpu_sample,
                            .wait = cpu_wait,
                            .free = cpu_free,
                            .program = cpu_program,
                            .lost = cpu_lost,
                            .renew = cpu_renew,
                            .sources = cpu_sources,
                            .report = cpu_report,
                            .ranks = cpu_ranks,
                            .n_pool_slots = config->n_pool_slots};
    x->model = m;
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    vt_status status = build(x, config, err);
    if (status != VT_OK) {
        cpu_free(&x->base);
        return status;
    }
    *out = &x->base;
    return VT_OK;
}
