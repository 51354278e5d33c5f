/* Capacity planning (sim/plan.h).
 *
 * Each replica has a clock of its own, which its device moves. Before a request is dispatched
 * every replica is run up to the time of its arrival, so that the choice sees what a real
 * dispatcher would see; a replica in the middle of a step takes the request in when that step is
 * over. The CPU's own time (scheduling, text) is not in the model: on a real machine it is
 * hidden behind the device. */
#include "sim/plan.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "sim/fake_device.h"

/* ---- the trace ---- */

typedef struct reading {
    vt_trace_file file;
    int32_t cap, hash_cap;
} reading;

static bool room_for(reading *r, int32_t n_hash)
{
    if (r->file.n == r->cap) {
        int32_t cap = r->cap ? 2 * r->cap : 1024;
        vt_trace_line *line = realloc(r->file.line, (size_t)cap * sizeof *line);
        if (!line)
            return false;
        r->file.line = line;
        r->cap = cap;
    }
    if (r->file.n_hash + n_hash > r->hash_cap) {
        int32_t cap = 2 * r->hash_cap + n_hash + 1024;
        int64_t *hash = realloc(r->file.hash, (size_t)cap * sizeof *hash);
        if (!hash)
            return false;
        r->file.hash = hash;
        r->hash_cap = cap;
    }
    return true;
}

/* A field that must be a number in [lo, hi]; false if it is not. */
static bool get_number(const json_t *j, const char *key, double lo, double hi, double *out)
{
    const json_t *v = json_object_get(j, key);
    *out = json_is_number(v) ? json_number_value(v) : NAN;
    return *out >= lo && *out <= hi;
}

static vt_status add_line(reading *r, const json_t *j, const char *name, int32_t number,
                          vt_err *err)
{
    double ms, in, out;
    if (!get_number(j, "timestamp", 0, 1e15, &ms))
        return vt_fail(err, VT_ERR_FORMAT, "%s: line %d: timestamp is missing or no time in ms",
                       name, number);
    if (!get_number(j, "input_length", 1, 1 << 24, &in) ||
        !get_number(j, "output_length", 0, 1 << 24, &out))
        return vt_fail(
            err, VT_ERR_FORMAT,
            "%s: line %d: input_length or output_length is missing or no number of tokens", name,
            number);
    const json_t *hashes = json_object_get(j, "hash_ids");
    size_t n = json_array_size(hashes); /* 0 where there are none: nothing is shared */
    if (n > 1 << 16 || !room_for(r, (int32_t)n))
        return vt_fail(err, VT_ERR_MEMORY, "%s: line %d: %zu hash_ids, or out of memory", name,
                       number, n);
    r->file.line[r->file.n++] = (vt_trace_line){.arrive_ns = (int64_t)(ms * 1e6),
                                                .input = (int32_t)in,
                                                .output = out < 1 ? 1 : (int32_t)out,
                                                .first_hash = r->file.n_hash,
                                                .n_hash = (int32_t)n};
    for (size_t i = 0; i < n; i++)
        r->file.hash[r->file.n_hash++] = json_integer_value(json_array_get(hashes, i));
    return VT_OK;
}

static int by_arrival(const void *a, const void *b)
{
    const vt_trace_line *x = a, *y = b;
    return (x->arrive_ns > y->arrive_ns) - (x->arrive_ns < y->arrive_ns);
}

vt_status vt_trace_parse(const char *name, const char *text, size_t len, int32_t max,
                         vt_trace_file *out, vt_err *err)
{
    reading r = {0};
    vt_status status = VT_OK;
    int32_t number = 0;
    for (size_t at = 0; status == VT_OK && at < len && r.file.n < max;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        json_error_t why;
        number++;
        if (n > strspn(text + at, " \t\r")) {
            json_t *j = json_loadb(text + at, n, 0, &why);
            status = j ? add_line(&r, j, name, number, err)
                       : vt_fail(err, VT_ERR_FORMAT, "%s: line %d: %s", name, number, why.text);
            json_decref(j);
        }
        at += n + 1;
    }
    if (status == VT_OK && r.file.n == 0)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: no requests found", name);
    if (status != VT_OK) {
        vt_trace_file_release(&r.file);
        return status;
    }
    qsort(r.file.line, (size_t)r.file.n, sizeof *r.file.line, by_arrival);
    for (int32_t i = r.file.n - 1; i >= 0; i--)
        r.file.line[i].arrive_ns -= r.file.line[0].arrive_ns;
    *out = r.file;
    return VT_OK;
}

void vt_trace_file_release(vt_trace_file *t)
{
    free(t->line);
    free(t->hash);
    *t = (vt_trace_file){0};
}

/* ---- replicas ---- */

typedef struct replica {
    vt_fake_clock clock;
    vt_engine *engine;
    int64_t open_tokens; /* of requests not ended */
} replica;

typedef struct flight { /* a request on its way */
    struct planning *plan;
    replica *at;
    int64_t arrive_ns, last_ns;
    int32_t tokens;
} flight;

typedef struct planning {
    replica *replica; /* [n] */
    int32_t n;
    flight *flight; /* [trace lines] */
    double *ttft, *itl;
    int64_t n_ttft, n_itl, itl_cap;
    int64_t end_ns, output_tokens;
    int32_t n_done, most_running;
    bool out_of_memory;
} planning;

static void on_event(void *user, const vt_event *e)
{
    flight *f = user;
    planning *p = f->plan;
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

static vt_status open_replica(const vt_plan_setup *s, replica *r, vt_err *err)
{
    vt_fake_config device = {.limits = s->sched.limits,
                             .n_pages = s->sched.n_pages,
                             .n_pool_slots = s->sched.limits.max_seqs,
                             .vocab = 1,
                             .clock = &r->clock,
                             .cost_ns = s->cost_ns,
                             .user = s->user,
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

static vt_status run_until(planning *p, replica *r, int64_t until_ns, vt_err *err)
{
    bool idle = false;
    while (!idle && r->clock.now_ns < until_ns) {
        TRY(vt_engine_step(r->engine, &idle, err));
        int32_t running = vt_engine_scheduler(r->engine)->n_running;
        p->most_running = running > p->most_running ? running : p->most_running;
    }
    if (until_ns != INT64_MAX && r->clock.now_ns < until_ns)
        r->clock.now_ns = until_ns;
    return VT_OK;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Tokens that are equal where the hashes are, and nowhere else. */
static void write_prompt(const vt_trace_file *t, int32_t at, int32_t *token)
{
    const vt_trace_line *l = &t->line[at];
    for (int32_t i = 0; i < l->input; i++) {
        int32_t block = i / VT_TRACE_BLOCK;
        uint64_t key = block < l->n_hash ? (uint64_t)t->hash[l->first_hash + block] * 2
                                         : (uint64_t)at * 2 + 1 + ((uint64_t)block << 40);
        token[i] = (int32_t)(mix(mix(key) + (uint64_t)(i % VT_TRACE_BLOCK)) % (INT32_MAX - 1));
    }
}

static replica *least_loaded(planning *p)
{
    replica *best = &p->replica[0];
    for (int32_t i = 1; i < p->n; i++)
        if (p->replica[i].open_tokens < best->open_tokens)
            best = &p->replica[i];
    return best;
}

static vt_status replay(planning *p, const vt_trace_file *t, double rate, int32_t *token,
                        vt_plan_result *out, vt_err *err)
{
    for (int32_t i = 0; i < t->n; i++) {
        const vt_trace_line *l = &t->line[i];
        flight *f = &p->flight[i];
        int64_t at = (int64_t)((double)l->arrive_ns / rate);
        for (int32_t k = 0; k < p->n; k++)
            TRY(run_until(p, &p->replica[k], at, err));
        *f = (flight){
            .plan = p, .at = least_loaded(p), .arrive_ns = at, .tokens = l->input + l->output};
        vt_request_params params;
        vt_request_id id;
        write_prompt(t, i, token);
        vt_request_init(&params);
        params.prompt = token;
        params.n_prompt = l->input;
        params.max_tokens = l->output;
        params.ignore_eos = true;
        params.callback = on_event;
        params.user = f;
        vt_status status = vt_engine_submit(f->at->engine, &params, &id, err);
        if (status == VT_ERR_USAGE)
            out->n_refused++;
        else if (status != VT_OK)
            return status;
        else
            f->at->open_tokens += f->tokens;
    }
    for (int32_t k = 0; k < p->n; k++)
        TRY(run_until(p, &p->replica[k], INT64_MAX, err));
    return VT_OK;
}

/* ---- the result ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static vt_percentiles percentiles(double *v, int64_t n)
{
    vt_percentiles p = {0};
    if (n == 0)
        return p;
    qsort(v, (size_t)n, sizeof *v, by_value);
    for (int64_t i = 0; i < n; i++)
        p.mean += v[i] / (double)n;
    p.p50 = v[(int64_t)(0.50 * (double)(n - 1))];
    p.p90 = v[(int64_t)(0.90 * (double)(n - 1))];
    p.p99 = v[(int64_t)(0.99 * (double)(n - 1))];
    return p;
}

static void summarise(planning *p, const vt_trace_file *t, double rate, vt_plan_result *out)
{
    double span_s = (double)t->line[t->n - 1].arrive_ns * 1e-9 / rate,
           total_s = (double)p->end_ns * 1e-9;
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
    out->offered_per_s = span_s > 0 ? t->n / span_s : 0;
    out->served_per_s = total_s > 0 ? p->n_done / total_s : 0;
    out->output_tokens_per_s = total_s > 0 ? (double)p->output_tokens / total_s : 0;
    out->hit_share = asked > 0 ? (double)hit / (double)asked : 0;
    out->device_share = total_s > 0 ? (double)device_ns * 1e-9 / (total_s * p->n) : 0;
    out->ttft = percentiles(p->ttft, p->n_ttft);
    out->itl = percentiles(p->itl, p->n_itl);
    out->most_running = p->most_running;
}

static vt_status make_room(planning *p, const vt_trace_file *t, int32_t **token, vt_err *err)
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

vt_status vt_plan_run(const vt_plan_setup *s, const vt_trace_file *t, double rate,
                      vt_plan_result *out, vt_err *err)
{
    planning p = {.n = s->n_replicas};
    vt_plan_result result = {0};
    int32_t *token = NULL;
    vt_status status = make_room(&p, t, &token, err);
    for (int32_t k = 0; status == VT_OK && k < p.n; k++)
        status = open_replica(s, &p.replica[k], err);
    if (status == VT_OK)
        status = replay(&p, t, rate, token, &result, err);
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
