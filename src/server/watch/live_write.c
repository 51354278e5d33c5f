/* A look as JSON (docs/live-page.md names the members). Lists of numbers are flat, so that a look
 * at a busy engine stays within a few tens of kilobytes. */
#include <math.h>

#include "server/watch/live_look.h"

static void put_now(const live_look *k, vt_json *w)
{
    const vt_engine_stats *s = &k->stats;
    vt_json_open(w, "now", '{');
    vt_json_int(w, "running", s->n_running);
    vt_json_int(w, "waiting", s->n_waiting);
    vt_json_fixed(w, "output_per_s", k->output_now, 1);
    vt_json_fixed(w, "prefill_per_s", k->prefill_now, 1);
    vt_json_int(w, "requests", (int64_t)s->requests);
    vt_json_int(w, "steps", (int64_t)s->sched.steps);
    vt_json_int(w, "output_tokens", (int64_t)s->output_tokens);
    vt_json_int(w, "prefill_tokens", (int64_t)s->sched.prefill_tokens);
    vt_json_int(w, "retracted", (int64_t)s->sched.retracted);
    vt_json_int(w, "faults", (int64_t)s->sched.faults);
    vt_json_int(w, "stopped", (int64_t)s->finished[VT_FINISH_STOP]);
    vt_json_int(w, "length", (int64_t)s->finished[VT_FINISH_LENGTH]);
    vt_json_int(w, "aborted", (int64_t)s->finished[VT_FINISH_ABORT]);
    vt_json_int(w, "failed", (int64_t)s->finished[VT_FINISH_ERROR]);
    vt_json_close(w);
}

static void put_pages(const live_look *k, vt_json *w)
{
    const vt_engine_stats *s = &k->stats;
    vt_json_open(w, "pages", '{');
    vt_json_int(w, "all", s->pages);
    vt_json_int(w, "used", s->pages_held);
    vt_json_int(w, "cached", s->pages_cached);
    vt_json_int(w, "free", s->pages_free);
    vt_json_int(w, "tokens", s->page_size);
    vt_json_int(w, "per_cell", k->pages_per_cell);
    vt_json_open(w, "cells", '['); /* four numbers each */
    for (int32_t i = 0; i < k->n_cells; i++) {
        vt_json_int(w, NULL, k->cell[i].n_used);
        vt_json_int(w, NULL, k->cell[i].n_cached);
        vt_json_int(w, NULL, k->cell[i].n_shared);
        vt_json_int(w, NULL, (int64_t)k->cell[i].owner);
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void put_tree(const live_look *k, vt_json *w)
{
    const vt_radix_stats *c = &k->stats.cache;
    uint64_t evicted = 0;
    for (int32_t i = 0; i < VT_EVICT_CAUSES; i++)
        evicted += c->evicted_pages[i];
    vt_json_open(w, "tree", '{');
    vt_json_int(w, "lookup_tokens", (int64_t)c->lookup_tokens);
    vt_json_int(w, "hit_tokens", (int64_t)(c->hit_tokens + c->copied_tokens));
    vt_json_int(w, "evicted_pages", (int64_t)evicted);
    vt_json_int(w, "pages", k->tree_pages);
    vt_json_int(w, "runs", k->all_runs);
    vt_json_open(w, "shown", '[');
    for (int32_t i = 0; i < k->n_runs; i++) {
        const vt_radix_run *r = &k->run[i];
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "parent", r->parent);
        vt_json_int(w, "pages", r->n_pages);
        vt_json_int(w, "tokens", r->n_tokens);
        vt_json_int(w, "users", r->users);
        vt_json_int(w, "hits", r->hits);
        vt_json_int(w, "hidden", r->hidden);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void put_running(const live_look *k, vt_json *w)
{
    vt_json_open(w, "running", '[');
    for (int32_t i = 0; i < k->n_running; i++) {
        const live_running *r = &k->running[i];
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "request", (int64_t)r->request);
        vt_json_int(w, "sample", r->sample);
        vt_json_int(w, "prompt", r->n_prompt);
        vt_json_int(w, "computed", r->n_computed);
        vt_json_int(w, "cached", r->n_cached);
        vt_json_int(w, "output", r->n_output);
        vt_json_int(w, "most", r->n_most);
        vt_json_int(w, "pages", r->n_pages);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_queue(const live_look *k, vt_json *w)
{
    static const char *const why[] = {"soon",   "batch full", "no pages",
                                      "behind", "retracted",  "token budget"};
    vt_json_open(w, "queue", '[');
    for (int32_t i = 0; i < k->n_queued; i++) {
        const live_queued *q = &k->queued[i];
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "request", (int64_t)q->request);
        vt_json_int(w, "sample", q->sample);
        vt_json_int(w, "tokens", q->n_tokens);
        vt_json_fixed(w, "waits_s", (double)q->wait_ns * 1e-9, 2);
        vt_json_string(w, "why", why[q->why]);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_step(const live_step *s, vt_json *w)
{
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "id", (int64_t)s->id);
    vt_json_fixed(w, "at_ms", (double)s->begin_ns * 1e-6, 3);
    vt_json_fixed(w, "ms", (double)(s->end_ns - s->begin_ns) * 1e-6, 2);
    vt_json_int(w, "tokens", s->n_tokens);
    vt_json_int(w, "decodes", s->n_decode);
    vt_json_int(w, "seqs", s->n_seqs);
    vt_json_open(w, "of", '['); /* request, its new tokens, its context after them */
    for (int32_t i = 0; i < s->n_listed; i++) {
        vt_json_int(w, NULL, (int64_t)s->request[i]);
        vt_json_int(w, NULL, s->q_len[i]);
        vt_json_int(w, NULL, s->kv_len[i]);
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void put_steps(const live_look *k, bool history, vt_json *w)
{
    uint64_t most = history ? LIVE_STEPS : LIVE_NEW_STEPS;
    uint64_t from = history ? 0 : k->told_steps;
    if (k->n_steps - from > most)
        from = k->n_steps - most;
    vt_json_open(w, "steps", '[');
    for (uint64_t i = from; i < k->n_steps; i++)
        put_step(&k->step[i % LIVE_STEPS], w);
    vt_json_close(w);
}

/* A part, when it began, how long it took: three numbers each. */
static void put_host(const live_look *k, bool history, vt_json *w)
{
    uint64_t most = history ? LIVE_PARTS : LIVE_NEW_PARTS;
    uint64_t from = history ? 0 : k->told_parts;
    if (k->n_parts - from > most)
        from = k->n_parts - most;
    vt_json_open(w, "host", '[');
    for (uint64_t i = from; i < k->n_parts; i++) {
        const live_part *p = &k->part[i % LIVE_PARTS];
        vt_json_int(w, NULL, p->part);
        vt_json_fixed(w, NULL, (double)p->begin_ns * 1e-6, 3);
        vt_json_fixed(w, NULL, (double)(p->end_ns - p->begin_ns) * 1e-6, 3);
    }
    vt_json_close(w);
}

static void put_latency(const live_latency *l, const char *key, vt_json *w)
{
    vt_json_open(w, key, '{');
    vt_json_int(w, "n", l->n);
    vt_json_fixed(w, "p50_ms", l->p50_s * 1e3, 2);
    vt_json_fixed(w, "p90_ms", l->p90_s * 1e3, 2);
    vt_json_fixed(w, "p99_ms", l->p99_s * 1e3, 2);
    vt_json_ints(w, "bins", l->bin, LIVE_BINS);
    vt_json_open(w, "stories", '[');
    for (int32_t i = 0; i < LIVE_BINS; i++)
        vt_json_int(w, NULL, (int64_t)l->request[i]);
    vt_json_close(w);
    vt_json_close(w);
}

static void put_rate(const double *rate, const char *key, vt_json *w)
{
    vt_json_open(w, key, '[');
    for (int32_t i = 0; i < LIVE_RATES; i++)
        vt_json_int(w, NULL, (int64_t)rate[i]);
    vt_json_close(w);
}

void live_look_write(const live_look *k, bool history, vt_json *w)
{
    double watched_ns = (double)(k->at_ns - k->first_ns);
    put_now(k, w);
    put_pages(k, w);
    put_tree(k, w);
    put_running(k, w);
    put_queue(k, w);
    vt_json_fixed(w, "at_ms", (double)k->at_ns * 1e-6, 3);
    put_steps(k, history, w);
    put_host(k, history, w);
    put_latency(&k->ttft, "ttft", w);
    put_latency(&k->itl, "itl", w);
    vt_json_open(w, "rates", '{');
    put_rate(k->output_rate, "output", w);
    put_rate(k->prefill_rate, "prefill", w);
    vt_json_close(w);
    vt_json_fixed(w, "held_ms", (double)k->held_ns * 1e-6, 4);
    vt_json_fixed(w, "held_share", watched_ns > 0 ? (double)k->held_sum_ns / watched_ns : NAN, 6);
}
