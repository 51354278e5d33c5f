/* The engine loop (engine/engine.h, docs/engine.md).
 *
 *   vt_engine_step:   take in new requests and aborts
 *                     plan   step N+1      | the device
 *                     launch step N+1      | runs step N
 *                     wait for step N      |
 *                     commit step N        | the device
 *                     masks of step N+1    |
 *                     text, callbacks of N | runs step N+1
 *
 * With overlap a call leaves one step in flight and publishes the one before it, so the device has
 * work while this thread schedules, detokenises and calls back. Lengths stay exact: pending tokens
 * are counted, so no step computes a position beyond max_tokens. An end that only a token's value
 * shows (end token, stop string), or an abort, is learned one step late; what that step computed
 * for the sequence is dropped at its commit.
 *
 * Nothing here allocates once a request is made, except that a request's text buffer grows for a
 * token piece longer than a kilobyte. Requests are freed when no step in flight contains them. */
#include "engine/engine.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/use.h"
#include "device/nvtx.h"
#include "engine/engine_inside.h"
#include "ops/shared_kv.h"

static const int64_t kSampleEvery = 1000000000, kMeterEvery = 50000000;

int64_t engine_now(const vt_engine *e)
{
    return e->config.now ? e->config.now(e->config.clock) : vt_now_ns();
}

/* ---- masks that take long ---- */

static void tell_mask(void *user)
{
    vt_engine *e = user;
    pthread_mutex_lock(&e->lock);
    e->masks_made = true;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

static void give_masks(vt_engine *e)
{
    vt_sched *s = &e->sched;
    for (int32_t i = 0; i < s->n_late; i++) {
        s->late[i]->constrained->late_at_ns = engine_now(e);
        vt_late_masks_give(e->late_masks, s->late[i]->constrained, s->late[i]);
    }
    s->n_late = 0;
}

static void take_masks(vt_engine *e)
{
    for (vt_seq *q; (q = vt_late_masks_take(e->late_masks)) != NULL;) {
        vt_trace_req_part(&e->requests, VT_REQ_LATE_MASK, q->req->id, q->constrained->late_at_ns,
                          engine_now(e));
        vt_sched_masked(&e->sched, q);
    }
}

/* There is nothing to compute before a mask is made: sleeps until one is, or until something else
 * is to be done, perhaps for a deadline. */
static void await_masks(vt_engine *e)
{
    enum { DEADLINE_NS = 20000000 };
    int64_t end = vt_now_ns() + DEADLINE_NS;
    struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    bool timely = true;
    pthread_mutex_lock(&e->lock);
    while (timely && !e->masks_made && e->n_inbox == 0 && e->n_aborts == 0 && e->n_holds == 0 &&
           !e->flush && !e->quit)
        timely = pthread_cond_timedwait(&e->wake, &e->lock, &until) == 0;
    e->masks_made = false;
    pthread_mutex_unlock(&e->lock);
}

/* ---- making and freeing ---- */

static vt_status reserve(vt_engine *e, vt_err *err)
{
    size_t rows = (size_t)e->config.sched.limits.max_rows;
    e->inbox = vt_calloc((size_t)e->config.sched.max_queued, sizeof *e->inbox);
    e->logprob = vt_calloc(rows, sizeof *e->logprob);
    e->top = vt_calloc(rows * VT_MAX_TOP_LOGPROBS, sizeof *e->top);
    e->late_masks = vt_late_masks_new(e->config.alone ? NULL : tell_mask, e);
    const vt_req_limits *r = &e->config.request;
    bool pools = r->pooling == VT_POOLING_NONE ||
                 vt_pooler_init(&e->pooler, r->pooling, r->n_hidden, r->dense, &r->rank);
    if (!e->inbox || !e->logprob || !e->top || !e->late_masks || !pools)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for an engine");
    return engine_recording_init(e, err);
}

/* Tells the scheduler how many KV pages the executor has made so far. Where a sequence waits for
 * room, all pages count as taken, so that the executor makes more. */
static void count_pages(vt_engine *e)
{
    const vt_pool *pool = &e->sched.radix.pool;
    const vt_slots *windows = &e->sched.radix.windows;
    vt_executor *x = e->executor;
    bool full = e->sched.no_room;
    vt_kv_count taken = {pool->n_pages - (full ? 0 : pool->n_free),
                         windows->n_slots - (full ? 0 : windows->n_free)};
    if (x->pages)
        vt_sched_set_pages(&e->sched, x->pages(x, taken));
}

vt_status vt_engine_create(const vt_engine_config *c, vt_executor *x, vt_engine **out, vt_err *err)
{
    vt_engine *e = vt_calloc(1, sizeof *e);
    if (!e) {
        x->free(x);
        vt_drafter drafter = c->sched.drafter;
        vt_drafter_free(&drafter);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for an engine");
    }
    e->config = *c;
    e->executor = x;
    e->next_id = 1;
    if (!c->now) {
        vt_energy_open(NULL, &e->energy);
        vt_uncore_open("", NULL, &e->uncore);
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    e->config.request.page_size = c->sched.limits.page_size;
    e->config.request.n_pages = c->sched.n_pages;
    e->config.request.windows = c->sched.n_windows > 0;
    e->config.request.max_queued = c->sched.max_queued;
    e->config.request.eos = c->sched.eos;
    e->config.request.n_eos = c->sched.n_eos;
    vt_status status = vt_sched_init(&e->sched, &e->config.sched, err);
    e->has_sched = status == VT_OK;
    if (status == VT_OK)
        status = reserve(e, err);
    if (status == VT_OK && c->request.tokenizer) {
        e->grammars = vt_grammar_store_new(c->request.tokenizer, c->request.vocab);
        if (!e->grammars)
            status = vt_fail(err, VT_ERR_MEMORY, "out of memory for an engine");
    }
    if (status != VT_OK) {
        vt_engine_free(e);
        return status;
    }
    e->stats.page_size = c->sched.limits.page_size;
    count_pages(e);
    e->stats.pages = e->stats.pages_free = e->sched.radix.pool.n_pages;
    *out = e;
    return VT_OK;
}

/* ---- taking in ---- */

static void abort_request(vt_engine *e, vt_req *r)
{
    for (int32_t i = 0; i < r->p.n; i++) {
        vt_seq *q = &r->seq[i];
        if (q->state == VT_SEQ_DONE)
            continue;
        vt_sched_finish(&e->sched, q, VT_END_ABORT);
        engine_publish(e, &(vt_output){.seq = q});
    }
}

/* Records what became of a request before it was submitted, as far as its parameters tell, and that
 * it was. */
static void trace_arrival(vt_engine *e, const vt_req *r)
{
    const vt_request_params *p = &r->p;
    int64_t rendered = p->rendered_ns ? p->rendered_ns : p->parsed_ns;
    if (p->arrived_ns && p->parsed_ns)
        vt_trace_req_part(&e->requests, VT_REQ_PARSE, r->id, p->arrived_ns, p->parsed_ns);
    if (p->parsed_ns && p->rendered_ns)
        vt_trace_req_part(&e->requests, VT_REQ_TEMPLATE, r->id, p->parsed_ns, p->rendered_ns);
    if (rendered && p->tokenised_ns)
        vt_trace_tokenise(&e->requests, r->id, rendered, p->tokenised_ns, p->n_prompt);
    vt_trace_arrive(&e->requests, r->id, r->arrive_ns, p->n_prompt, r->adapter);
}

/* Moves submitted requests into the scheduler, and ends those that are to be aborted. */
static void take_in(vt_engine *e)
{
    pthread_mutex_lock(&e->lock);
    int32_t n_inbox = e->n_inbox, n_aborts = e->n_aborts, n_live = e->n_live;
    bool flush = e->flush;
    e->flush = false;
    for (int32_t i = 0; i < n_inbox; i++) {
        vt_req *r = e->inbox[i];
        trace_arrival(e, r);
        r->range = vt_nvtx_begin("request", r->id);
        vt_sched_add(&e->sched, r);
    }
    e->n_inbox = 0;
    e->n_aborts = 0;
    pthread_mutex_unlock(&e->lock);
    if (flush)
        vt_radix_flush(&e->sched.radix);
    if (n_aborts == 0)
        return;
    /* only this thread takes requests out of the list, in publish_all: the first n_live stay */
    for (int32_t i = 0; i < n_live; i++) {
        pthread_mutex_lock(&e->lock);
        vt_req *r = e->live[i];
        bool abort = r->abort;
        pthread_mutex_unlock(&e->lock);
        if (abort)
            abort_request(e, r);
    }
}

/* ---- a step ---- */

/* The ring of a step's events. */
static vt_trace_ring *steps_ring(vt_engine *e, const vt_plan *p)
{
    return p->step.batch.n_tokens > p->step.batch.n_decode ? &e->prompt_steps : &e->steps;
}

/* Why a sequence was in the queue until now: what most of the plans that left it there gave as
 * their reason. */
static vt_wait_reason why_waited(const vt_engine *e, const vt_seq *q)
{
    int best = VT_WAIT_NONE;
    for (int i = 0; i < VT_WAIT_REASONS; i++)
        if (q->n_waited[i] > q->n_waited[best])
            best = i;
    bool stepping = e->n_flight > 0 || e->ended_ns > q->req->arrive_ns;
    return best == VT_WAIT_NONE && stepping ? VT_WAIT_STEP : (vt_wait_reason)best;
}

/* Tells of a sequence that a plan admitted. */
static void trace_admission(vt_engine *e, const vt_flight *f, const vt_plan_entry *entry,
                            bool is_first)
{
    const vt_seq *q = entry->seq;
    int32_t cached = entry->kv_len - entry->q_len;
    uint64_t id = q->req->id;
    if (is_first)
        vt_trace_req_wait(&e->requests, id, q->index, q->req->arrive_ns, f->begin_ns,
                          why_waited(e, q), f->plan->step.id);
    vt_trace_match(&e->requests, id, f->begin_ns, f->planned_ns, cached, q->hit_copied);
    vt_trace_admit(&e->requests, id, f->planned_ns, q->n_pages);
    vt_trace_cache_event(&e->requests, id, f->planned_ns, VT_CACHE_HIT, cached);
}

static void trace_plan(vt_engine *e, const vt_flight *f)
{
    const vt_plan *p = f->plan;
    vt_trace_ring *steps = steps_ring(e, p);
    int64_t drafted = f->begin_ns + f->draft_ns;
    if (f->draft_ns > 0)
        vt_trace_part_of(steps, p->step.id, VT_PART_DRAFT, f->begin_ns, drafted);
    vt_trace_part_of(steps, p->step.id, VT_PART_SCHEDULE, drafted, f->planned_ns);
    vt_trace_part_of(steps, p->step.id, VT_PART_PREPARE, f->planned_ns, f->launched_ns);
}

/* Records what a plan did to pages and to other requests: pages entered and given up since the last
 * plan. */
static void trace_changes(vt_engine *e, int64_t at)
{
    const vt_radix_stats *st = &e->sched.radix.stats;
    if (st->inserted_pages > e->told_inserted)
        vt_trace_cache_event(&e->requests, 0, at, VT_CACHE_INSERT,
                             (int32_t)(st->inserted_pages - e->told_inserted));
    for (int32_t i = 0; i < VT_EVICT_CAUSES; i++) {
        if (st->evicted_pages[i] > e->told_evicted[i])
            vt_trace_evict(&e->requests, at, (int32_t)(st->evicted_pages[i] - e->told_evicted[i]),
                           i);
        e->told_evicted[i] = st->evicted_pages[i];
    }
    e->told_inserted = st->inserted_pages;
    for (int32_t i = 0; i < e->sched.n_retracted; i++)
        vt_trace_retract(&e->requests, e->sched.retracted[i]->req->id, at);
}

/* The sequences of a step, with the pages that decodes have in common. */
static void trace_seqs(vt_trace_ring *ring, const vt_plan *p)
{
    const vt_batch *b = &p->step.batch;
    int32_t shared[SHARED_MOST_SEQS] = {0};
    if (b->n_decode <= SHARED_MOST_SEQS)
        shared_kv_find(b, shared);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        int32_t pages = i < b->n_decode && i < SHARED_MOST_SEQS ? shared[i] / b->page_size : 0;
        vt_trace_seq(ring, p->step.id, p->entry[i].seq->req->id, p->entry[i].q_len,
                     p->entry[i].kv_len, pages);
    }
}

static void trace_step(vt_engine *e, const vt_plan *p, const vt_step_result *r)
{
    const vt_batch *b = &p->step.batch;
    const vt_pool *pool = &e->sched.radix.pool;
    vt_trace_ring *steps = steps_ring(e, p);
    vt_trace_step(steps, &(vt_step_ran){.step = p->step.id,
                                        .begin_ns = r->begin_ns,
                                        .end_ns = r->end_ns,
                                        .n_tokens = b->n_tokens,
                                        .n_seqs = b->n_seqs,
                                        .n_decode = b->n_decode,
                                        .pages_held = pool->n_held,
                                        .pages_cached = pool->n_cached,
                                        .pages_free = pool->n_free});
    trace_seqs(steps == &e->steps ? &e->seqs : steps, p);
}

/* A step failed: waits for what is in flight, and takes back all that was not committed. */
static vt_status drop_flights(vt_engine *e, const vt_err *why, vt_err *err)
{
    vt_step_result ignored;
    for (; e->n_flight > 0; e->n_flight--)
        (void)e->executor->wait(e->executor, &ignored, NULL);
    return engine_fault(e, why, err);
}

/* The step before the only one in flight was committed: if that one is held, gives its rows their
 * masks and lets it choose. */
static vt_status release_masks(vt_engine *e, vt_err *err)
{
    vt_plan *p = e->n_flight > 0 ? e->flight[0].plan : NULL;
    if (!p || !p->step.held)
        return VT_OK;
    vt_sched_mask(p);
    return e->executor->sample(e->executor, err);
}

/* Waits for the oldest step in flight, commits and publishes it. */
static vt_status finish_step(vt_engine *e, vt_err *err)
{
    vt_step_result result;
    vt_flight f = e->flight[0];
    vt_err why = {0};
    vt_status status = e->executor->wait(e->executor, &result, &why);
    if (status == VT_OK && result.id != f.plan->step.id)
        status = vt_fail(&why, VT_ERR_DEVICE, "%s gave step %llu, expected %llu", e->executor->name,
                         (unsigned long long)result.id, (unsigned long long)f.plan->step.id);
    if (status != VT_OK) {
        e->n_flight--; /* one launched after it read KV that it did not write: it is dropped too */
        return drop_flights(e, &why, err);
    }
    int64_t begin = e->ended_ns = engine_now(e);
    vt_trace_ring *steps = steps_ring(e, f.plan);
    trace_step(e, f.plan, &result);
    e->device_ns += result.end_ns - result.begin_ns;
    vt_sched_commit(&e->sched, f.plan, &result);
    give_masks(e);
    int64_t committed = engine_now(e);
    e->flight[0] = e->flight[1];
    e->n_flight--;
    status = release_masks(e, &why);
    engine_publish_all(e, &result);
    int64_t end = engine_now(e);
    e->publish_ns += end - begin;
    vt_trace_part_of(steps, result.id, VT_PART_SAMPLE, begin, committed);
    vt_trace_publish(steps, result.id, committed, e->text_ns, end);
    return status == VT_OK ? VT_OK : drop_flights(e, &why, err);
}

/* Counts what events tell about the prompts of a launched step. */
static void count_chunks(vt_engine *e, const vt_flight *f)
{
    for (int32_t i = 0; i < f->plan->step.batch.n_seqs; i++) {
        const vt_plan_entry *entry = &f->plan->entry[i];
        vt_seq *q = entry->seq;
        q->n_chunks += entry->kv_len - entry->q_len < q->n_prompt;
        if (q->admit_step == f->plan->step.id)
            trace_admission(e, f, entry, q->admitted_ns == 0);
        if (q->admitted_ns == 0)
            q->admitted_ns = f->planned_ns;
    }
}

static vt_status launch(vt_engine *e, vt_flight f, vt_err *err)
{
    vt_err why = {0};
    vt_nvtx_push_number("step", f.plan->step.id);
    vt_status launched = e->executor->launch(e->executor, &f.plan->step, &why);
    vt_nvtx_pop();
    if (launched != VT_OK) {
        /* the step launched before it may have succeeded; if not, that is the failure to act on */
        uint64_t faults = e->sched.stats.faults;
        vt_status status = e->n_flight > 0 ? finish_step(e, err) : VT_OK;
        return e->sched.stats.faults > faults ? status : engine_fault(e, &why, err);
    }
    f.launched_ns = engine_now(e);
    count_chunks(e, &f);
    e->flight[e->n_flight++] = f;
    trace_plan(e, &f);
    return VT_OK;
}

static void publish_stats(vt_engine *e)
{
    const vt_sched *s = &e->sched;
    pthread_mutex_lock(&e->lock);
    vt_engine_stats *st = &e->stats;
    st->n_running = s->n_running;
    st->n_queued = s->n_queue;
    int32_t n = s->n_queue + s->n_masked;
    for (int32_t i = 0; i < e->n_inbox; i++)
        n += e->inbox[i]->p.n;
    st->n_waiting = e->n_waiting = n;
    st->pages = s->radix.pool.n_pages;
    st->pages_free = s->radix.pool.n_free;
    st->pages_held = s->radix.pool.n_held;
    st->pages_cached = s->radix.pool.n_cached;
    memset(st->finished, 0, sizeof st->finished);
    memcpy(st->ended, e->n_ended, sizeof st->ended);
    for (int i = VT_END_NONE + 1; i < VT_END_REASONS; i++)
        st->finished[vt_end_finish((vt_end_reason)i)] += e->n_ended[i];
    st->recoveries = e->n_recovered;
    st->output_tokens = e->n_output_tokens;
    st->sched = s->stats;
    st->cache = s->radix.stats;
    st->last_step_ns = engine_now(e);
    st->lost = e->lost;
    st->schedule_ns = e->schedule_ns;
    st->device_ns = e->device_ns;
    st->publish_ns = e->publish_ns;
    st->masks = e->masks;
    pthread_mutex_unlock(&e->lock);
}

/* Looks at the whole machine once a second, and at its energy counter, if it has one, 20 times a
 * second; at both counters also when the engine has nothing left to do (`idle`). Not with a clock
 * of the simulator's. */
static void sample_machine(vt_engine *e, bool idle)
{
    vt_machine_event sample = {.pressure_us = -1,
                               .steal_ticks = -1,
                               .ticks = -1,
                               .throttle = -1,
                               .sm_mhz = -1,
                               .memory_mhz = -1,
                               .power_mw = -1,
                               .others_percent = -1};
    if (e->config.now)
        return;
    int64_t now = vt_now_ns();
    bool whole = now - e->sampled_ns >= kSampleEvery,
         meter = (e->energy.n > 0 && (idle || now - e->metered_ns >= kMeterEvery)) ||
                 (e->uncore.n > 0 && idle);
    if (!whole && !meter)
        return;
    if (whole) {
        vt_use_machine(&sample);
        e->sampled_ns = sample.at_ns;
    }
    if ((whole || idle) && vt_uncore_read(&e->uncore, &sample.read_bytes, &sample.written_bytes))
        sample.controllers = e->uncore.n_controllers;
    e->metered_ns = sample.at_ns = vt_now_ns();
    sample.energy_mj = vt_energy_read_mj(&e->energy);
    vt_trace_machine(&e->samples, &sample);
}

static vt_status one_step(vt_engine *e, bool *idle, vt_err *err)
{
    take_in(e);
    take_masks(e);
    sample_machine(e, false);
    vt_status status = engine_mend(e, err);
    count_pages(e);
    vt_flight f = {.begin_ns = engine_now(e)};
    int64_t drafted = e->sched.stats.draft_ns;
    f.plan = status == VT_OK ? vt_sched_plan(&e->sched, f.begin_ns) : NULL;
    f.planned_ns = engine_now(e);
    f.draft_ns = e->sched.stats.draft_ns - drafted;
    e->schedule_ns += f.planned_ns - f.begin_ns;
    trace_changes(e, f.planned_ns);
    if (f.plan)
        status = launch(e, f, err);
    bool wait = e->n_flight == VT_PLANS || (e->n_flight > 0 && (!e->config.overlap || !f.plan));
    if (status == VT_OK && wait)
        status = finish_step(e, err);
    engine_publish_all(e, NULL); /* deadlines and aborts end sequences without a step's result */
    publish_stats(e);
    *idle = e->n_flight == 0 && vt_sched_idle(&e->sched);
    if (!f.plan && e->n_flight == 0 && e->sched.n_masked > 0 && !e->config.alone)
        await_masks(e);
    if (*idle && f.begin_ns < e->ended_ns)
        sample_machine(e, true);
    return status;
}

/* ---- who may step ---- */

static bool is_stepper(const vt_engine *e) /* lock held */
{
    return e->stepping && pthread_equal(e->stepper, pthread_self());
}

/* Fails if something keeps this thread from stepping, or waiting, by hand. Lock held. */
static vt_status check_by_hand(vt_engine *e, const char *what, vt_err *err)
{
    if (is_stepper(e))
        return vt_fail(err, VT_ERR_USAGE, "%s: called from a callback of the same engine", what);
    if (e->started)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: the engine's loop runs on a thread of its own (vt_engine_start)", what);
    if (e->stepping)
        return vt_fail(err, VT_ERR_USAGE, "%s: another thread is in vt_engine_step", what);
    return VT_OK;
}

static vt_status step_begin(vt_engine *e, bool by_loop, vt_err *err)
{
    pthread_mutex_lock(&e->lock);
    while (e->n_holds > 0 && !is_stepper(e))
        pthread_cond_wait(&e->wake, &e->lock);
    vt_status status = by_loop ? VT_OK : check_by_hand(e, "vt_engine_step", err);
    if (status == VT_OK) {
        e->stepping = true;
        e->stepper = pthread_self();
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

static void step_end(vt_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stepping = false;
    if (e->n_holds > 0)
        pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

vt_status vt_engine_step(vt_engine *e, bool *idle, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_step: the engine", err));
    TRY(step_begin(e, false, err));
    bool nothing_left = false;
    vt_status status = one_step(e, &nothing_left, err);
    step_end(e);
    if (idle && status == VT_OK)
        *idle = nothing_left;
    return status;
}

vt_status vt_engine_hold(vt_engine *e, vt_err *err)
{
    vt_status status = VT_OK;
    pthread_mutex_lock(&e->lock);
    if (is_stepper(e))
        status = vt_fail(err, VT_ERR_USAGE, "called from a callback of the same engine");
    else
        e->n_holds++;
    while (status == VT_OK && e->stepping)
        pthread_cond_wait(&e->wake, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return status;
}

void vt_engine_release(vt_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->n_holds--;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* ---- other threads ---- */

void vt_engine_wrote(vt_engine *e, vt_request_id id, int64_t begin_ns, int64_t end_ns,
                     int64_t spent_ns, int64_t n_bytes)
{
    if (!e || begin_ns <= 0 || end_ns < begin_ns || spent_ns < 0 || n_bytes < 0)
        return;
    pthread_mutex_lock(&e->lock);
    vt_trace_write(&e->writes, id, begin_ns, end_ns, spent_ns, n_bytes);
    pthread_mutex_unlock(&e->lock);
}

vt_status vt_engine_submit(vt_engine *e, const vt_request_params *p, vt_request_id *id, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_submit: the engine", err));
    TRY(vt_check_pointer(p, "vt_engine_submit: the request", err));
    return engine_submit_grammar(e, p, id, err);
}

vt_status vt_engine_submit_constrained(vt_engine *e, const vt_request_params *p,
                                       const vt_constraint_maker *maker, vt_request_id *id,
                                       vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_submit: the engine", err));
    TRY(vt_check_pointer(p, "vt_engine_submit: the request", err));
    pthread_mutex_lock(&e->lock);
    vt_request_id mine = e->next_id++;
    pthread_mutex_unlock(&e->lock);
    vt_req *r;
    TRY(vt_req_new(p, mine, engine_now(e), &e->config.request, &r, err));
    vt_status status = maker ? vt_req_constrain(r, maker, e->config.request.vocab, err) : VT_OK;
    if (status != VT_OK) {
        vt_req_free(r);
        return status;
    }
    pthread_mutex_lock(&e->lock);
    if (e->closing)
        status = vt_fail(err, VT_ERR_USAGE, "the engine is being freed");
    else if (r->p.n > e->config.sched.max_queued - e->n_waiting)
        status = vt_fail(err, VT_ERR_BUSY,
                         "%d sequences wait already, and the queue holds %d (option max-queued)",
                         e->n_waiting, e->config.sched.max_queued);
    if (status == VT_OK && e->n_live == e->live_cap) {
        int32_t cap = e->live_cap ? 2 * e->live_cap : 64;
        vt_req **live = realloc(e->live, (size_t)cap * sizeof *live);
        if (live) {
            e->live = live;
            e->live_cap = cap;
        } else {
            status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a request");
        }
    }
    if (status == VT_OK) {
        r->live_at = e->n_live;
        e->live[e->n_live++] = r;
        e->inbox[e->n_inbox++] = r;
        e->n_waiting += r->p.n;
        e->stats.requests++;
        if (id)
            *id = mine;
        pthread_cond_broadcast(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    if (status != VT_OK)
        vt_req_free(r);
    return status;
}

void vt_engine_abort(vt_engine *e, vt_request_id id)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->n_live; i++) {
        if (e->live[i]->id == id && !e->live[i]->abort) {
            e->live[i]->abort = true;
            e->n_aborts++;
            pthread_cond_broadcast(&e->wake);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void vt_engine_copy_stats(vt_engine *e, vt_engine_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    out->n_waiting = e->n_waiting;
    pthread_mutex_unlock(&e->lock);
    if (e->grammars)
        out->grammars = vt_grammar_store_look(e->grammars);
    out->recorder_bytes = engine_recorder_bytes(e);
    if (e->executor->held)
        e->executor->held(e->executor, &out->held);
}

vt_status vt_engine_get_stats_size(vt_engine *e, vt_stats *out, size_t size, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_get_stats: the engine", err));
    TRY(vt_check_pointer(out, "vt_engine_get_stats: out", err));
    vt_engine_stats s;
    vt_engine_copy_stats(e, &s);
    vt_stats all = {.page_size = s.page_size,
                    .pages = s.pages,
                    .pages_used = s.pages_held,
                    .pages_cached = s.pages_cached,
                    .pages_free = s.pages_free,
                    .running = s.n_running,
                    .queued = s.n_waiting,
                    .requests = s.requests,
                    .finished_stop = s.finished[VT_FINISH_STOP],
                    .finished_length = s.finished[VT_FINISH_LENGTH],
                    .finished_abort = s.finished[VT_FINISH_ABORT],
                    .finished_error = s.finished[VT_FINISH_ERROR],
                    .steps = s.sched.steps,
                    .prefill_tokens = s.sched.prefill_tokens,
                    .decode_tokens = s.sched.decode_tokens,
                    .output_tokens = s.output_tokens,
                    .retractions = s.sched.retracted,
                    .device_failures = s.sched.faults,
                    .cache_lookup_tokens = s.cache.lookup_tokens,
                    .cache_hit_tokens = s.cache.hit_tokens,
                    .cache_copied_tokens = s.cache.copied_tokens,
                    .schedule_ns = s.schedule_ns,
                    .device_ns = s.device_ns,
                    .publish_ns = s.publish_ns,
                    .device_recoveries = s.recoveries,
                    .draft_tokens = s.sched.draft_tokens,
                    .draft_accepted = s.sched.draft_accepted};
    for (int32_t i = 0; i < VT_EVICT_CAUSES; i++)
        all.cache_evicted_pages += s.cache.evicted_pages[i];
    memset(out, 0, size); /* fields of a later version than this one */
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    return VT_OK;
}

void vt_engine_flush_cache(vt_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->flush = true;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* Sleeps until there is something to do, `until` at the latest (NULL: for ever). True if there is.
 * Lock held. */
static bool wait_for_work(vt_engine *e, const struct timespec *until)
{
    for (;;) {
        if (e->n_live > 0 || e->n_aborts > 0 || e->flush)
            return true;
        if (e->quit)
            return false;
        if (!until)
            pthread_cond_wait(&e->wake, &e->lock);
        else if (pthread_cond_timedwait(&e->wake, &e->lock, until) == ETIMEDOUT)
            return false;
    }
}

vt_status vt_engine_wait(vt_engine *e, int32_t timeout_ms, bool *ready, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_wait: the engine", err));
    int64_t end = vt_now_ns() + (int64_t)timeout_ms * 1000000;
    struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    pthread_mutex_lock(&e->lock);
    vt_status status = check_by_hand(e, "vt_engine_wait", err);
    bool work = status == VT_OK && wait_for_work(e, timeout_ms < 0 ? NULL : &until);
    pthread_mutex_unlock(&e->lock);
    if (ready && status == VT_OK)
        *ready = work;
    return status;
}

/* ---- a loop of its own ---- */

/* False when the loop shall end. */
static bool loop_wait(vt_engine *e, bool idle)
{
    pthread_mutex_lock(&e->lock);
    if (idle && !e->quit)
        wait_for_work(e, NULL);
    bool go_on = !e->quit;
    pthread_mutex_unlock(&e->lock);
    return go_on;
}

static void *loop_main(void *arg)
{
    vt_engine *e = arg;
    for (bool idle = false; loop_wait(e, idle);) {
        idle = false; /* a failed step leaves it as it is */
        (void)step_begin(e, true, NULL);
        (void)one_step(e, &idle, NULL); /* every request that a failure hits gets its error */
        step_end(e);
    }
    return NULL;
}

vt_status vt_engine_start(vt_engine *e, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_start: the engine", err));
    pthread_mutex_lock(&e->lock);
    vt_status status = check_by_hand(e, "vt_engine_start", err);
    if (status == VT_OK) {
        e->quit = false;
        int rc = pthread_create(&e->thread, NULL, loop_main, e);
        if (rc != 0)
            status = vt_fail(err, VT_ERR_MEMORY,
                             "the engine's thread could not be started (error %d)", rc);
        e->started = rc == 0;
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

void vt_engine_stop(vt_engine *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    bool wait = e->started && !is_stepper(e);
    e->quit = e->started;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (!wait)
        return;
    pthread_join(e->thread, NULL);
    pthread_mutex_lock(&e->lock);
    e->started = e->quit = false;
    pthread_mutex_unlock(&e->lock);
}

/* ---- the end ---- */

/* Ends every open request with VT_FINISH_ABORT, so that each one has published its end once. */
static void abort_all(vt_engine *e)
{
    vt_step_result result;
    for (; e->n_flight > 0; e->n_flight--)
        (void)e->executor->wait(e->executor, &result, NULL);
    take_in(e);
    for (vt_seq *q; (q = vt_late_masks_abort(e->late_masks)) != NULL;)
        vt_sched_masked(&e->sched, q);
    vt_sched_fault(&e->sched); /* drops the steps whose results were not committed */
    engine_publish_all(e, NULL);
    while (e->n_live > 0) {
        abort_request(e, e->live[0]);
        engine_publish_all(e, NULL);
    }
}

void vt_engine_end_requests(vt_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stepping = true; /* callbacks from here are told what others are */
    e->stepper = pthread_self();
    pthread_mutex_unlock(&e->lock);
    abort_all(e);
    step_end(e);
}

bool vt_engine_embeds(const vt_engine *e) { return e->config.request.pooling != VT_POOLING_NONE; }
bool vt_engine_ranks(const vt_engine *e) { return e->config.request.pooling == VT_POOLING_RANK; }

int32_t vt_engine_max_sequences(const vt_engine *e)
{
    return e->config.sched.max_queued + e->config.sched.limits.max_seqs;
}
int32_t vt_engine_max_context(const vt_engine *e) { return e->config.request.max_context; }

void vt_engine_free(vt_engine *e)
{
    if (!e)
        return;
    vt_engine_stop(e);
    pthread_mutex_lock(&e->lock);
    e->closing = e->stepping = true; /* a callback that calls back gets the usual error */
    e->stepper = pthread_self();
    pthread_mutex_unlock(&e->lock);
    if (e->has_sched) {
        abort_all(e);
        vt_sched_release(&e->sched);
    }
    e->executor->free(e->executor); /* it may read an EAGLE-3 head's matrix */
    vt_drafter_free(&e->config.sched.drafter);
    free(e->own_model);
    engine_recording_release(e);
    vt_energy_close(&e->energy);
    vt_uncore_close(&e->uncore);
    vt_late_masks_free(e->late_masks);
    vt_grammar_store_free(e->grammars);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e->inbox);
    free(e->live);
    free(e->logprob);
    free(e->top);
    vt_pooler_release(&e->pooler);
    free(e);
}

void vt_engine_dump_cache(const vt_engine *e, vt_buf *out) { vt_radix_dump(&e->sched.radix, out); }

const vt_executor *vt_engine_executor(const vt_engine *e) { return e->executor; }
const vt_model *vt_engine_model(const vt_engine *e) { return e->model; }
const vt_sched *vt_engine_scheduler(const vt_engine *e) { return &e->sched; }
