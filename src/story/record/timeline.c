/* The way of a request (timeline.h).
 *
 *   parse | template | tokenise | wait | match | chunk, chunk ... | decode ......... | done
 *                                           retract, evict, match again ...
 *
 * Times count from the first moment that is known of the request (story_origin). */
#include "story/record/timeline.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/term/term.h"
#include "engine/end_reason.h"
#include "kv/radix.h"
#include "story/predict.h"
#include "story/record/gpu.h"
#include "story/record/numbers.h"

enum { MAX_EVENTS = 96, MAX_CHUNKS = 8, TEXT = 256 };

/* ---- events in their order ---- */

typedef struct event {
    const char *what;
    int64_t at_ns;
    double s;      /* NAN: a moment */
    int32_t order; /* of events of the same time */
    char text[TEXT];
} event;

typedef struct timeline {
    const story_input *in;
    const story_record *r;
    event *event; /* [MAX_EVENTS] */
    int32_t n;
} timeline;

static void add(timeline *t, const char *what, int64_t at_ns, double s, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static void add(timeline *t, const char *what, int64_t at_ns, double s, const char *fmt, ...)
{
    if (t->n == MAX_EVENTS)
        return;
    event *e = &t->event[t->n];
    *e = (event){.what = what, .at_ns = at_ns, .s = s, .order = t->n++};
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
}

static int earliest_first(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns > y->at_ns ? 1 : -1;
    return x->order - y->order;
}

/* ---- before the first step ---- */

static void add_span(timeline *t, const char *what, span s, const char *text)
{
    if (s.end_ns > s.begin_ns)
        add(t, what, s.begin_ns, span_s(s), "%s", text);
}

static void add_arrival(timeline *t)
{
    const request_record *q = t->r->mine;
    char rate[64] = "";
    add_span(t, "parse", q->parse, "the request's body");
    add_span(t, "template", q->template, "the messages become one text");
    if (q->tokenise.end_ns > 0) {
        double per_ms = q->n_prompt / (span_s(q->tokenise) * 1e3);
        if (isfinite(per_ms))
            snprintf(rate, sizeof rate, ", %.*f tokens/ms", per_ms < 10 ? 1 : 0, per_ms);
        add(t, "tokenise", q->tokenise.begin_ns, span_s(q->tokenise), "%d token%s%s%s", q->n_prompt,
            vt_text_s(q->n_prompt), rate, q->template.end_ns ? "" : ", the chat template included");
    }
    add(t, "arrive", q->arrive_ns, NAN, "%d prompt token%s", q->n_prompt, vt_text_s(q->n_prompt));
}

/* The step that ran when the request came; NULL: none. */
static const step_record *step_at(const story_record *r, int64_t at_ns)
{
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].device.begin_ns <= at_ns && at_ns < r->step[i].device.end_ns)
            return &r->step[i];
    return NULL;
}

/* In words, for the reasons that a limit or a rule gave. */
static const char *limit_text(vt_wait_reason reason)
{
    static const char *const text[VT_WAIT_REASONS] = {
        [VT_WAIT_TOKENS] = "the token budget of the steps before was used up",
        [VT_WAIT_ROWS] = "the steps before had no row of logits left",
        [VT_WAIT_SLOTS] = "as many sequences ran as may run at once",
        [VT_WAIT_PAGES] = "too few KV pages were free or could be evicted",
        [VT_WAIT_PREFIX] = "another request was computing pages of its prefix, which it rides on",
        [VT_WAIT_POLICY] = "the policy let others go first",
        [VT_WAIT_FLIGHT] = "its own last step had not ended"};
    return (unsigned)reason < VT_WAIT_REASONS ? text[reason] : NULL;
}

/* "length" and so on, and the reason where that does not say it. */
static void add_end(timeline *t, const request_record *q)
{
    const char *finish = vt_finish_name(vt_end_finish(q->end));
    bool said = q->end == VT_END_STOP_TOKEN || q->end == VT_END_MAX_TOKENS ||
                q->end == VT_END_ABORT;
    if (said)
        add(t, "done", q->finish_ns, NAN, "%s", finish);
    else
        add(t, "done", q->finish_ns, NAN, "%s: %s", finish, vt_end_reason_name(q->end));
}

static void add_wait(timeline *t)
{
    const request_record *q = t->r->mine;
    const step_record *s = step_at(t->r, q->arrive_ns);
    const char *limit = limit_text(q->waited_for);
    int64_t end = q->wait.end_ns ? q->wait.end_ns : q->match.begin_ns;
    char behind[96] = "";
    if (s)
        snprintf(behind, sizeof behind, "%sbehind step %llu (%d decode%s + %d prompt tokens)",
                 limit ? "; " : "", (unsigned long long)s->id, s->n_decode, vt_text_s(s->n_decode),
                 s->n_tokens - s->n_decode);
    if (end > q->arrive_ns && (limit || s))
        add(t, "wait", q->arrive_ns, (double)(end - q->arrive_ns) * 1e-9, "%s%s",
            limit ? limit : "", behind);
}

/* ---- the prefix ---- */

typedef struct work {
    double bytes, flops, floor_s;
    double expected_s; /* NAN: an efficiency is not known (story/predict.h) */
} work;

/* The prompt's tokens from `from` on, in chunks as long as a step may be. `learn`: rows whose
 * efficiency is not known may be measured. */
static work prefill_work(const story_input *in, story_step *plan, int32_t from, int32_t to,
                         bool learn)
{
    const vt_program *p = story_step_program(plan);
    work w = {0};
    int32_t most = p->target.limits.max_tokens;
    for (int32_t at = from; at < to; at += most) {
        int32_t end = at + most < to ? at + most : to;
        story_seq seq = {.q_len = end - at, .kv_len = end, .n_rows = end == to};
        if (story_step_set(plan, &seq, 1, NULL) != VT_OK)
            return (work){NAN, NAN, NAN, NAN};
        if (learn && in->learn && in->efficiencies)
            in->learn(in, plan);
        for (int32_t i = 0; i < p->n_calls; i++) {
            vt_cost cost, extra;
            story_bound bound;
            if (!story_step_cost(plan, i, &cost, &extra))
                continue;
            w.bytes += (double)vt_cost_bytes(&cost);
            w.flops += (double)vt_cost_flops(&cost);
            w.floor_s += story_floor_s(&cost, &in->roofs, &bound);
            w.expected_s += story_expected_s(plan, i, &in->roofs, in->efficiencies);
        }
    }
    return w;
}

void story_put_prefix(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                      const phase *prefill)
{
    const request_record *q = r->mine;
    int32_t size = in->program->target.limits.page_size;
    if (!q || !q->match.end_ns) {
        vt_json_null(w, "prefix");
        return;
    }
    int32_t cached = q->n_cached < q->n_prompt ? q->n_cached : q->n_prompt - 1;
    work all = prefill_work(in, plan, 0, q->n_prompt, cached > 0),
         rest = prefill_work(in, plan, cached, q->n_prompt, cached > 0);
    /* Where efficiencies are not known: the request's own prefill step took so many times its
     * floor, once its kernels had been started. */
    double times = prefill->n_timed && prefill->floor_s > 0
                       ? (prefill->timed_s - prefill->once_s) / prefill->floor_s
                       : NAN,
           saved_s = all.expected_s - rest.expected_s;
    if (!isfinite(saved_s))
        saved_s = (all.floor_s - rest.floor_s) * times;
    vt_json_open(w, "prefix", '{');
    vt_json_int(w, "prompt_pages", (q->n_prompt + size - 1) / size);
    vt_json_int(w, "found_pages", (q->n_cached - q->n_copied) / size);
    vt_json_int(w, "copied_tokens", q->n_copied);
    vt_json_bool(w, "ridden_on", q->waited_for == VT_WAIT_PREFIX);
    vt_json_tagged(w, "saved_bytes", all.bytes - rest.bytes, 0, derived);
    vt_json_tagged(w, "saved_flops", all.flops - rest.flops, 0, derived);
    put_ms(w, "saved_ms", saved_s, "modelled");
    vt_json_close(w);
}

static void add_match(timeline *t, const vt_req_match *e, int32_t n_pages)
{
    const request_record *q = t->r->mine;
    int32_t size = t->in->program->target.limits.page_size;
    char copied[64] = "", of[32] = "";
    bool again = e->begin_ns != q->match.begin_ns; /* then it has tokens of its answer as well */
    if (e->n_copied > 0)
        snprintf(copied, sizeof copied, ", %d token%s copied from part of a page", e->n_copied,
                 vt_text_s(e->n_copied));
    if (!again)
        snprintf(of, sizeof of, " of %d", q->n_prompt);
    add(t, "match", e->begin_ns, (double)(e->end_ns - e->begin_ns) * 1e-9,
        "%s%d%s tokens found in the cache (%d whole page%s%s); holds %d page%s",
        again ? "again: " : "", e->n_cached, of, (e->n_cached - e->n_copied) / size,
        vt_text_s((e->n_cached - e->n_copied) / size), copied, n_pages, vt_text_s(n_pages));
}

/* ---- what the engine did to pages and to the request ---- */

static const char *evict_reason(int32_t why)
{
    static const char *const reason[VT_EVICT_CAUSES] = {
        [VT_EVICT_ADMIT] = "room for a new prompt",
        [VT_EVICT_GROW] = "room for the next page of a running sequence",
        [VT_EVICT_COVERED] = "a longer page begins with its tokens",
        [VT_EVICT_FLUSH] = "the cache was emptied"};
    return why >= 0 && why < VT_EVICT_CAUSES ? reason[why] : "no reason recorded";
}

/* Evictions, retractions and later look-ups, of the request's life alone. */
static void add_engine(timeline *t)
{
    enum { MAX_EVICTIONS = 8 };
    const request_record *q = t->r->mine;
    int32_t evictions = 0, pages = 0, n_pages = q->n_pages;
    int64_t end = q->finish_ns > 0 ? q->finish_ns : INT64_MAX;
    for (uint64_t i = 0; i < t->r->n_events; i++) {
        const vt_request_event *e = &t->r->event[i];
        if (e->kind == VT_REQ_MATCH && e->request == q->id) {
            if (i + 1 < t->r->n_events && t->r->event[i + 1].kind == VT_REQ_ADMIT)
                n_pages = t->r->event[i + 1].admit.n_pages;
            add_match(t, &e->match, n_pages);
        } else if (e->kind == VT_REQ_RETRACT && e->request == q->id) {
            add(t, "retract", e->retract.at_ns, NAN,
                "no page was left for a running sequence: its pages go to others, it waits again");
        } else if (e->kind == VT_REQ_LATE_MASK && e->request == q->id) {
            add(t, "mask", e->part.begin_ns, (double)(e->part.end_ns - e->part.begin_ns) * 1e-9,
                "the mask of its next token takes long: the request waits for it without pages, "
                "others go on");
        } else if (e->kind == VT_REQ_CACHE && e->cache.what == VT_CACHE_EVICT &&
                   e->cache.why != VT_EVICT_COVERED && e->cache.at_ns >= q->arrive_ns &&
                   e->cache.at_ns <= end) {
            pages += e->cache.n;
            if (evictions++ < MAX_EVICTIONS)
                add(t, "evict", e->cache.at_ns, NAN,
                    "%d page%s that no running sequence used, least recently used first: %s",
                    e->cache.n, vt_text_s(e->cache.n), evict_reason(e->cache.why));
        }
    }
    if (evictions > MAX_EVICTIONS)
        add(t, "evict", end == INT64_MAX ? q->arrive_ns : end, NAN,
            "%d pages in %d evictions in all", pages, evictions);
}

/* ---- steps ---- */

static void add_phase(timeline *t, const phase *p)
{
    char mixed[64] = "", how[96] = "";
    story_gpu_how(p, phase_stream(p), how, sizeof how);
    if (p->others > 0)
        snprintf(mixed, sizeof mixed, ", with %.1f other sequences", p->others);
    add(t, p->name, p->begin_ns, (double)(p->end_ns - p->begin_ns) * 1e-9,
        "%d token%s in %d %s%s%s%s%s", p->n_tokens, vt_text_s(p->n_tokens), p->n_steps,
        p->name[0] == 'p' ? "chunk" : "step", vt_text_s(p->n_steps), mixed, *how ? "; " : "", how);
}

/* The chunks of a prompt, where there are several; of many the first and the last. */
static void add_chunks(timeline *t, const phase *p)
{
    int32_t k = 0;
    for (int32_t i = 0; i < t->r->n_steps && p->n_steps > 1; i++) {
        const step_record *s = &t->r->step[i];
        if (!s->chosen || !s->prefill)
            continue;
        k++;
        if (k > MAX_CHUNKS / 2 && k <= p->n_steps - MAX_CHUNKS / 2)
            continue;
        add(t, "chunk", s->device.begin_ns, span_s(s->device),
            "%d of %d: %d tokens in step %llu, up to position %d%s", k, p->n_steps, s->q_len,
            (unsigned long long)s->id, s->kv_len, s->n_seqs > 1 ? ", beside other sequences" : "");
    }
}

static double overlap_s(span a, span b)
{
    int64_t from = a.begin_ns > b.begin_ns ? a.begin_ns : b.begin_ns,
            to = a.end_ns < b.end_ns ? a.end_ns : b.end_ns;
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

/* Steps on the device do not overlap each other, and a part of step i meets those near it. */
double story_hidden(const story_record *r, bool prefill, vt_trace_part part)
{
    enum { NEAR = 2 };
    double all = 0, hidden = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen || s->prefill != prefill)
            continue;
        all += span_s(s->part[part]);
        for (int32_t k = i > NEAR ? i - NEAR : 0; k <= i + NEAR && k < r->n_steps; k++)
            hidden += overlap_s(s->part[part], r->step[k].device);
    }
    return all > 0 ? hidden / all : NAN;
}

/* Work of the engine's thread after a step, summed over the request's steps. */
typedef struct after_steps {
    double s;
    int32_t n;
    int64_t last_ns; /* where the last of them began */
} after_steps;

static void add_after(after_steps *a, span s)
{
    a->s += span_s(s);
    a->n++;
    a->last_ns = s.begin_ns;
}

static void put_after(timeline *t, const char *what, const after_steps *a, const char *text)
{
    if (a->n > 0)
        add(t, what, a->last_ns, a->s, "%s: %.1f us a step, over %d step%s", text,
            a->s / a->n * 1e6, a->n, vt_text_s(a->n));
}

/* From tokens to the reader: making text of them, handing it to callbacks, and, as far as whoever
 * writes it told, writing it. In a recording that does not tell the first two apart they are one
 * event. */
static void add_text(timeline *t)
{
    const story_record *r = t->r;
    const request_record *q = r->mine;
    after_steps text = {0}, call = {0}, both = {0};
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        span p = s->part[VT_PART_PUBLISH];
        if (!s->chosen || p.end_ns == 0)
            continue;
        if (s->text.end_ns == 0) {
            add_after(&both, p);
            continue;
        }
        add_after(&text, s->text);
        add_after(&call, (span){s->text.end_ns, p.end_ns});
    }
    put_after(t, "detokenise", &text, "text of tokens");
    put_after(t, "publish", &call, "callbacks, which are handed the text");
    put_after(t, "publish", &both, "text of tokens, and callbacks");
    if (q->write.end_ns > 0 && q->write_bytes > 0)
        add(t, "write", q->write.begin_ns, (double)q->write_ns * 1e-9,
            "%lld byte%s given to the reader, in pieces over %.1f ms", (long long)q->write_bytes,
            vt_text_s((int32_t)q->write_bytes), span_s(q->write) * 1e3);
}

vt_status story_put_timeline(vt_json *w, const story_input *in, story_record *r,
                             const phase phases[STORY_PHASES], vt_err *err)
{
    const request_record *q = r->mine;
    const phase *p = &phases[STORY_PREFILL], *d = &phases[STORY_DECODE];
    timeline t = {.in = in, .r = r};
    t.event = vt_arena_alloc(&r->arena, MAX_EVENTS, sizeof *t.event);
    if (!t.event)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (q) {
        add_arrival(&t);
        add_wait(&t);
    }
    if (q && p->n_steps)
        add_phase(&t, p);
    if (q && p->n_steps) {
        add_chunks(&t, p);
        if (d->n_steps)
            add(&t, "transition", d->begin_ns, NAN, "prefill -> decode");
    }
    if (q && d->n_steps)
        add_phase(&t, d);
    if (q && q->finish_ns)
        add_end(&t, q);
    if (q) {
        add_text(&t);
        add_engine(&t);
    }
    qsort(t.event, (size_t)t.n, sizeof *t.event, earliest_first);
    vt_json_open(w, "timeline", '[');
    for (int32_t i = 0; i < t.n; i++) {
        const event *e = &t.event[i];
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "event", e->what);
        put_ms(w, "at_ms", (double)(e->at_ns - story_origin(r)) * 1e-9, measured);
        put_ms(w, "ms", e->s, measured);
        vt_json_string(w, "text", e->text);
        vt_json_close(w);
    }
    vt_json_close(w);
    return VT_OK;
}
