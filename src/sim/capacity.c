/* Replaying a trace for capacity planning (sim/capacity.h).
 *
 * Each replica has a clock of its own, which its device moves. Before a request is dispatched,
 * every replica is run up to the time of the request's arrival, so that the choice is based on what
 * a real dispatcher would see. The one whose clock is furthest behind goes first, so that a step
 * knows how many replicas are busy beside it. A replica in the middle of a step accepts the request
 * when that step is over. The CPU's own time (scheduling, text) is not modelled: on a real machine
 * it is hidden behind the device's. */
#include "sim/capacity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/stats.h"
#include "engine/engine.h"
#include "sim/fake_device.h"

/* ---- replicas ---- */

typedef struct replica {
    vt_fake_clock clock;
    vt_engine *engine;
    struct replaying *of;
    bool idle;           /* it has nothing left to do before the time that all are run to */
    int64_t open_tokens; /* prompt and output tokens of its requests that have not ended */
} replica;

/* A submitted request, and when its newest token came. */
typedef struct flight {
    struct replaying *replaying;
    replica *at;
    int64_t arrive_ns, last_ns;
    int32_t tokens;
} flight;

typedef struct replaying {
    const vt_capacity_setup *setup;
    replica *replica; /* [n] */
    int32_t n;
    flight *flight; /* [trace lines] */
    double *ttft, *itl;
    int64_t n_ttft, n_itl, itl_cap;
    int64_t end_ns, output_tokens;
    int32_t n_done, most_running;
    bool out_of_memory;
} replaying;

static void on_event(void *user, const vt_event *e)
{
    flight *f = user;
    replaying *p = f->replaying;
    int64_t now = f->at->clock.now_ns;
    if (e->n_tokens > 0) {
        if (e->completion_tokens == 1)
            p->ttft[p->n_ttft++] = (double)(now - f->arrive_ns) * 1e-9;
        else if (p->n_itl < p->itl_cap)
            p->itl[p->n_itl++] = (double)(now - f->last_ns) * 1e-9;
        f->last_ns = now;
        p->output_tokens++;
    }
    if (e->finish == VT_FINISH_NONE)
        return;
    p->n_done++;
    f->at->open_tokens -= f->tokens;
    p->end_ns = now > p->end_ns ? now : p->end_ns;
}

static int64_t step_cost_ns(void *user, const vt_step *step)
{
    const replica *r = user;
    const replaying *p = r->of;
    int32_t n_busy = 0;
    for (int32_t i = 0; i < p->n; i++)
        n_busy += p->replica[i].open_tokens > 0 || &p->replica[i] == r;
    return p->setup->cost_ns(p->setup->user, step, n_busy);
}

static vt_status open_replica(replaying *p, replica *r, vt_err *err)
{
    const vt_capacity_setup *s = p->setup;
    r->of = p;
    vt_fake_config device = {.limits = s->sched.limits,
                             .n_pages = s->sched.n_pages,
                             .n_states = s->sched.n_states,
                             .n_pool_slots = s->sched.limits.max_seqs,
                             .vocab = 1,
                             .clock = &r->clock,
                             .cost_ns = step_cost_ns,
                             .user = r,
                             .hollow = true};
    vt_engine_config config = {
        .sched = s->sched,
        .request = {.vocab = INT32_MAX, .max_context = s->sched.limits.max_context},
        .overlap = s->overlap,
        .now = vt_fake_now,
        .clock = &r->clock};
    vt_executor *x;
    TRY(vt_fake_device_new(&device, &x, err));
    return vt_engine_create(&config, x, &r->engine, err);
}

/* The replica that is furthest behind of those with work before `until_ns`; NULL: none has. */
static replica *furthest_behind(replaying *p, int64_t until_ns)
{
    replica *best = NULL;
    for (int32_t k = 0; k < p->n; k++) {
        replica *r = &p->replica[k];
        if (!r->idle && r->clock.now_ns < (best ? best->clock.now_ns : until_ns))
            best = r;
    }
    return best;
}

/* Runs steps of all replicas until their clocks reach `until_ns` or nothing is left to do. */
static vt_status run_until(replaying *p, int64_t until_ns, vt_err *err)
{
    for (int32_t k = 0; k < p->n; k++)
        p->replica[k].idle = false;
    for (replica *r; (r = furthest_behind(p, until_ns));) {
        TRY(vt_engine_step(r->engine, &r->idle, err));
        int32_t running = vt_engine_scheduler(r->engine)->n_running;
        p->most_running = running > p->most_running ? running : p->most_running;
    }
    for (int32_t k = 0; k < p->n && until_ns != INT64_MAX; k++)
        if (p->replica[k].clock.now_ns < until_ns)
            p->replica[k].clock.now_ns = until_ns;
    return VT_OK;
}

/* Writes a prompt whose blocks have equal tokens exactly where the trace has equal hashes. The
 * tokens of a block are random numbers whose seed is the block's hash or, if it has none, made from
 * the request's number and the block's place. */
static void write_prompt(const vt_trace_file *t, int32_t at, int32_t *token)
{
    const vt_trace_line *l = &t->line[at];
    for (int32_t i = 0; i < l->input; i++) {
        int32_t block = i / VT_TRACE_BLOCK;
        uint64_t key = block < l->n_hash ? t->hash[l->first_hash + block]
                                         : ~vt_mix64((uint64_t)at + ((uint64_t)block << 32));
        uint64_t draw = vt_mix64(key +
                                 (uint64_t)(i % VT_TRACE_BLOCK) * UINT64_C(0x9e3779b97f4a7c15));
        token[i] = (int32_t)(draw % (INT32_MAX - 1));
    }
}

/* The replica whose open requests have the fewest tokens (prompt and output) in total. */
static replica *least_loaded(replaying *p)
{
    replica *best = &p->replica[0];
    for (int32_t i = 1; i < p->n; i++)
        if (p->replica[i].open_tokens < best->open_tokens)
            best = &p->replica[i];
    return best;
}

/* Returns true if the engine can serve request `l`. If not, counts the reason; if it will cut the
 * output, counts that. */
static bool check_room(const vt_capacity_setup *s, const vt_trace_line *l, vt_capacity_result *out)
{
    const vt_limits *lim = &s->sched.limits;
    int64_t pool = (int64_t)s->sched.n_pages * lim->page_size;
    int64_t most = lim->max_context < pool + 1 ? lim->max_context : pool + 1;
    if (l->input + 1 > lim->max_context) {
        out->n_too_long++;
        return false;
    }
    if (l->input > pool) {
        out->n_no_room++;
        return false;
    }
    int64_t lacking = (int64_t)l->input + l->output - most;
    out->n_cut += lacking > 0;
    out->cut_tokens += lacking > 0 ? lacking : 0;
    return true;
}

/* Submits request i, which arrives at `at`, to the least loaded replica. */
static vt_status send(replaying *p, const vt_trace_file *t, int32_t i, int64_t at, int32_t *token,
                      vt_err *err)
{
    const vt_trace_line *l = &t->line[i];
    flight *f = &p->flight[i];
    *f = (flight){
        .replaying = p, .at = least_loaded(p), .arrive_ns = at, .tokens = l->input + l->output};
    vt_request_params params;
    write_prompt(t, i, token);
    vt_request_init(&params);
    params.prompt = token;
    params.n_prompt = l->input;
    params.max_tokens = l->output;
    params.ignore_eos = true;
    params.callback = on_event;
    params.user = f;
    f->at->open_tokens += f->tokens;
    return vt_engine_submit(f->at->engine, &params, NULL, err);
}

static vt_status replay(replaying *p, const vt_capacity_setup *s, const vt_trace_file *t,
                        double rate, int32_t *token, vt_capacity_result *out, vt_err *err)
{
    for (int32_t i = 0; i < t->n; i++) {
        int64_t at = (int64_t)((double)t->line[i].arrive_ns / rate);
        TRY(run_until(p, at, err));
        if (check_room(s, &t->line[i], out))
            TRY(send(p, t, i, at, token, err));
    }
    return run_until(p, INT64_MAX, err);
}

/* ---- the result ---- */

static vt_percentiles percentiles(double *v, int64_t n)
{
    vt_percentiles p = {0};
    if (n == 0)
        return p;
    for (int64_t i = 0; i < n; i++)
        p.mean += v[i] / (double)n;
    p.p50 = vt_percentile(v, (size_t)n, 0.50);
    p.p90 = vt_percentile(v, (size_t)n, 0.90);
    p.p99 = vt_percentile(v, (size_t)n, 0.99);
    return p;
}

/* Requests served per second, not counting the `tail_s` seconds that an idle machine needs after
 * the last arrival. */
static double served(const vt_capacity_result *r, double tail_s)
{
    double behind_s = r->tail_s > tail_s ? r->tail_s - tail_s : 0;
    return r->span_s + behind_s > 0 ? r->n_done / (r->span_s + behind_s) : 0;
}

static void summarise(replaying *p, const vt_trace_file *t, double rate, vt_capacity_result *out)
{
    double span_s = (double)t->line[t->n - 1].arrive_ns * 1e-9 / rate,
           total_s = (double)p->end_ns * 1e-9;
    out->rate = rate;
    out->span_s = span_s;
    out->tail_s = total_s > span_s ? total_s - span_s : 0;
    uint64_t asked = 0, hit = 0;
    int64_t device_ns = 0;
    for (int32_t k = 0; k < p->n; k++) {
        vt_engine_stats st;
        vt_engine_copy_stats(p->replica[k].engine, &st);
        asked += st.cache.lookup_tokens;
        hit += st.cache.hit_tokens + st.cache.copied_tokens;
        device_ns += st.device_ns;
        out->steps += st.sched.steps;
        out->retracted += st.sched.retracted;
    }
    out->n_done = p->n_done;
    out->offered_per_s = span_s > 0 ? (t->n - out->n_too_long - out->n_no_room) / span_s : 0;
    out->served_per_s = served(out, 0);
    out->output_tokens_per_s = total_s > 0 ? (double)p->output_tokens / total_s : 0;
    out->hit_share = asked > 0 ? (double)hit / (double)asked : 0;
    out->device_share = total_s > 0 ? (double)device_ns * 1e-9 / (total_s * p->n) : 0;
    out->ttft = percentiles(p->ttft, p->n_ttft);
    out->itl = percentiles(p->itl, p->n_itl);
    out->most_running = p->most_running;
}

static vt_status make_room(replaying *p, const vt_trace_file *t, int32_t **token, vt_err *err)
{
    int32_t longest = 1;
    for (int32_t i = 0; i < t->n; i++) {
        longest = t->line[i].input > longest ? t->line[i].input : longest;
        p->itl_cap += t->line[i].output;
    }
    p->replica = vt_calloc((size_t)p->n, sizeof *p->replica);
    p->flight = vt_calloc((size_t)t->n, sizeof *p->flight);
    p->ttft = vt_calloc((size_t)t->n, sizeof *p->ttft);
    p->itl = vt_calloc((size_t)p->itl_cap, sizeof *p->itl);
    *token = vt_calloc((size_t)longest, sizeof **token);
    return p->replica && p->flight && p->ttft && p->itl && *token
               ? VT_OK
               : vt_fail(err, VT_ERR_MEMORY, "out of memory for a trace of %d requests", t->n);
}

vt_status vt_capacity_run(const vt_capacity_setup *s, const vt_trace_file *t, double rate,
                          vt_capacity_result *out, vt_err *err)
{
    replaying p = {.setup = s, .n = s->n_replicas};
    vt_capacity_result result = {0};
    int32_t *token = NULL;
    vt_status status = make_room(&p, t, &token, err);
    for (int32_t k = 0; status == VT_OK && k < p.n; k++)
        status = open_replica(&p, &p.replica[k], err);
    if (status == VT_OK)
        status = replay(&p, s, t, rate, token, &result, err);
    if (status == VT_OK) {
        summarise(&p, t, rate, &result);
        *out = result;
    }
    for (int32_t k = 0; p.replica && k < p.n; k++)
        vt_engine_free(p.replica[k].engine);
    free(p.replica);
    free(p.flight);
    free(p.ttft);
    free(p.itl);
    free(token);
    return status;
}

/* ---- the search ---- */

/* *row is the table's row for a rate. If there is none, the trace is run at that rate and the
 * result is inserted in order. NULL: the table is full. */
static vt_status add_rate(const vt_capacity_setup *s, const vt_trace_file *t, double rate,
                          vt_capacity_table *table, vt_capacity_result **row, vt_err *err)
{
    int32_t at = 0;
    while (at < table->n && table->row[at].rate < rate)
        at++;
    *row = &table->row[at];
    if (at < table->n && (*row)->rate == rate)
        return VT_OK;
    *row = NULL;
    if (table->n == VT_CAPACITY_RATES)
        return VT_OK;
    if (s->go_on && !s->go_on(s->user, rate))
        return vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    vt_capacity_result r;
    TRY(vt_capacity_run(s, t, rate, &r, err));
    *row = &table->row[at];
    memmove(*row + 1, *row, (size_t)(table->n - at) * sizeof **row);
    **row = r;
    table->n++;
    return VT_OK;
}

/* Guesses a rate at which the devices are busy for at most a third of the time: the work of run `r`
 * spread over a longer time, rounded down to a power of two. (At lower rates smaller batches form
 * and there is more work in total, so the guess may have to be repeated.) */
static double guess_idle(const vt_capacity_result *r)
{
    double busy_s = r->device_share * (r->span_s + r->tail_s);
    double rate = busy_s > 0 ? r->rate * r->span_s / (3 * busy_s) : r->rate;
    return exp2(floor(log2(rate)));
}

enum { GUESSES = 16 };

/* Finds a rate at which the devices idle more than half of the time, and adds its row. */
static vt_status find_idle(const vt_capacity_setup *s, const vt_trace_file *t,
                           vt_capacity_table *table, double *rate, vt_err *err)
{
    vt_capacity_result *r;
    TRY(add_rate(s, t, *rate = 1, table, &r, err));
    for (int32_t i = 0; i < GUESSES && r && r->n_done > 0; i++) {
        double guess = guess_idle(r);
        if (r->device_share <= 0.5 && guess <= *rate * 4)
            return VT_OK;
        if (r->device_share > 0.5 && guess > *rate / 2)
            guess = *rate / 2;
        TRY(add_rate(s, t, *rate = guess, table, &r, err));
    }
    return VT_OK;
}

/* Computes served_per_s of every row, now that the tail of an idle machine is known, and from that
 * the first saturated row. */
static void judge(vt_capacity_table *table, double idle_rate)
{
    table->idle = 0;
    for (int32_t i = 0; i < table->n; i++)
        if (table->row[i].rate == idle_rate)
            table->idle = i;
    table->saturated = -1;
    for (int32_t i = 0; i < table->n; i++) {
        vt_capacity_result *r = &table->row[i];
        r->served_per_s = served(r, table->row[table->idle].tail_s);
        if (i > table->idle && table->saturated < 0 && r->served_per_s < 0.9 * r->offered_per_s)
            table->saturated = i;
    }
}

vt_status vt_capacity_search(const vt_capacity_setup *s, const vt_trace_file *t,
                             vt_capacity_table *out, vt_err *err)
{
    if (t->line[t->n - 1].arrive_ns == 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "the trace's %d requests arrive at one moment, so it has no rate to vary: "
                       "expected timestamps that differ",
                       t->n);
    vt_capacity_table table = {.saturated = -1};
    vt_capacity_result *r;
    double idle;
    TRY(find_idle(s, t, &table, &idle, err));
    judge(&table, idle);
    /* The first guesses may have left rows at rates far above saturation: also try the rates below
     * them. */
    for (double rate = 2 * idle; table.row[0].n_done > 0; rate *= 2) {
        if (table.saturated >= 0 && rate >= table.row[table.saturated].rate)
            break;
        TRY(add_rate(s, t, rate, &table, &r, err));
        if (!r)
            break;
        judge(&table, idle);
    }
    *out = table;
    return VT_OK;
}
