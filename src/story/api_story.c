/* vt_engine_story and story_of_engine: copy an engine's rings and have a story made of them. They
 * are not in the engine, because the engine does not know stories. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/use.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "model/model.h"
#include "story/predict.h"
#include "story/story.h"

/* A story_input borrows these. */
typedef struct copies {
    vt_source *facts;     /* [n] */
    story_source *source; /* [n]; every array of a source is malloc'ed */
    vt_roofs *roofs;      /* [n]; a source's own, where no source before it has the same device */
    int32_t n;
} copies;

static void release(copies *c)
{
    for (int32_t i = 0; c->source && i < c->n; i++) {
        story_source *s = &c->source[i];
        free((void *)s->request);
        free((void *)s->step);
        free((void *)s->span);
        free((void *)s->launch);
        free((void *)s->use);
        free((void *)s->sample);
        free((void *)s->vital);
        free((void *)s->pm);
        free((void *)s->activity);
        free((void *)s->kernel);
    }
    free(c->source);
    free(c->facts);
    free(c->roofs);
}

/* The newest events of a ring, malloc'ed. NULL where the source has no such ring, or, with *ok set
 * to false, where memory ran out. */
static void *copy_ring(const vt_trace_ring *ring, uint64_t *n, bool *ok)
{
    if (!ring)
        return NULL;
    void *events = vt_calloc(ring->capacity, ring->event_bytes);
    *n = events ? vt_trace_copy(ring, events, ring->capacity) : 0;
    *ok = *ok && events;
    return events;
}

/* The events of requests, when their text was written, then their tokens. */
static vt_request_event *copy_requests(const vt_source *from, uint64_t *n, bool *ok)
{
    if (!from->requests)
        return NULL;
    uint64_t room = from->requests->capacity, tokens = from->tokens ? from->tokens->capacity : 0,
             writes = from->writes ? from->writes->capacity : 0;
    vt_request_event *events = vt_calloc(room + writes + tokens, sizeof *events);
    *ok = *ok && events;
    if (!events)
        return NULL;
    *n = vt_trace_copy(from->requests, events, room);
    *n += vt_trace_copy(from->writes, events + *n, writes);
    *n += vt_trace_copy_tokens(from->tokens, events + *n, tokens);
    return events;
}

/* The events of steps with prompt tokens, of the others, and the sequences of the others. */
static vt_step_event *copy_steps(const vt_source *from, uint64_t *n, bool *ok)
{
    if (!from->steps)
        return NULL;
    uint64_t prompts = from->prompt_steps ? from->prompt_steps->capacity : 0,
             steps = from->steps->capacity, seqs = from->seqs ? from->seqs->capacity : 0,
             newest = 0;
    vt_step_event *events = vt_calloc(prompts + steps + seqs, sizeof *events);
    *ok = *ok && events;
    if (!events)
        return NULL;
    *n = vt_trace_copy(from->prompt_steps, events, prompts);
    *n += vt_trace_copy(from->steps, events + *n, steps);
    for (uint64_t i = 0; i < *n; i++)
        newest = events[i].step > newest ? events[i].step : newest;
    *n += vt_trace_copy_seqs(from->seqs, newest, events + *n, seqs);
    return events;
}

static vt_span *copy_spans(const vt_span_rings *rings, uint64_t *n, bool *ok)
{
    uint64_t most = rings ? vt_spans_held(rings) : 0;
    vt_span *spans = rings ? vt_calloc(most + 1, sizeof *spans) : NULL;
    *n = spans ? vt_spans_copy(rings, spans, most) : 0;
    *ok = *ok && (spans || !rings);
    return spans;
}

static vt_status copy_source(const vt_source *from, story_source *to, vt_err *err)
{
    vt_err why = {0};
    to->is = *from;
    bool ok = true;
    to->request = copy_requests(from, &to->n_requests, &ok);
    to->step = copy_steps(from, &to->n_steps, &ok);
    to->span = copy_spans(from->spans, &to->n_spans, &ok);
    to->launch = copy_ring(from->launches, &to->n_launches, &ok);
    to->use = copy_ring(from->uses, &to->n_uses, &ok);
    to->vital = copy_ring(from->vitals, &to->n_vitals, &ok);
    to->pm = copy_ring(from->pm, &to->n_pm, &ok);
    to->activity = copy_ring(from->activity, &to->n_activity, &ok);
    vt_machine_event *sample = copy_ring(from->samples, &to->n_samples, &ok);
    to->sample = sample;
    /* one more, of now: a copy never fills its last place */
    if (from->kind == VT_SOURCE_ENGINE && to->n_samples > 0)
        vt_use_machine(&sample[to->n_samples++]);
    to->free_bytes = from->free_bytes ? from->free_bytes(from->owner) : -1;
    to->has_state = from->state && from->state(from->owner, &to->state, &why) == VT_OK;
    snprintf(to->state_missing, sizeof to->state_missing, "%s", why.message);
    vt_kernel_facts *kernel = vt_calloc((size_t)from->n_kernels + 1, sizeof *kernel);
    to->kernel = kernel;
    if (!kernel || !ok)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory copying what %s recorded", from->name);
    for (int32_t k = 0; k < from->n_kernels; k++)
        from->kernel(from->owner, k, &kernel[k]);
    return VT_OK;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns what recording one op call costs here and now: two readings of the clock and a span. */
static double event_cost_ns(void)
{
    enum { EVENTS = 4096 };
    vt_trace_ring ring;
    if (vt_trace_init(&ring, sizeof(vt_span), EVENTS, NULL) != VT_OK)
        return NAN;
    double best = INFINITY;
    for (int run = 0; run < 5; run++) {
        int64_t begin = vt_now_ns(), at = begin;
        for (int i = 0; i < EVENTS; i++) {
            int64_t ran = vt_now_ns(), met = vt_now_ns();
            vt_trace_met(&ring, begin, i, at, ran, met);
            at = met;
        }
        best = fmin(best, (double)(vt_now_ns() - begin) / EVENTS);
    }
    vt_trace_release(&ring);
    return best;
}

/* Gets the roofs of every device that runs steps. *out: those of the first source that knows
 * any. */
static vt_status get_roofs(copies *c, bool again, vt_roofs *out, vt_err *err)
{
    bool any = false;
    if (!c->roofs)
        c->roofs = vt_calloc((size_t)c->n + 1, sizeof *c->roofs);
    if (!c->roofs)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the roofs of the machine");
    for (int32_t i = 0; i < c->n; i++) {
        int32_t same = 0;
        if (!c->facts[i].roofs)
            continue;
        while (c->facts[same].roofs != c->facts[i].roofs ||
               c->facts[same].owner != c->facts[i].owner)
            same++;
        if (same == i)
            TRY(c->facts[i].roofs(c->facts[i].owner, again, &c->roofs[i], err));
        if (c->source)
            c->source[i].roofs = &c->roofs[same];
        if (!any)
            *out = c->roofs[i];
        any = true;
    }
    return any ? VT_OK
               : vt_fail(err, VT_ERR_UNSUPPORTED, "the executor knows no roofs of its device");
}

/* A story that is being made. */
typedef struct making {
    story_input in; /* the first member: `learn` gets it alone */
    vt_engine *engine;
    story_measures measures;
    int64_t since_ns; /* steps that began earlier are left out; 0: none */
    int32_t n_known;  /* efficiencies that the cache had */
    copies c;
    vt_radix_nodes tree;
} making;

static const int64_t learn_ns = INT64_C(1500000000);

/* Measures the rows of the step whose efficiency is not known. On a CPU that takes some 10 ms for a
 * shape; on a GPU `vitrine explain` does it, because compiling takes longer. What cannot be
 * measured leaves an expected time out. */
static void learn(const story_input *in, const story_step *step)
{
    if (vt_now_ns() < in->learn_until_ns)
        story_measure_rows(step, &in->roofs, -1, in->efficiencies, NULL, NULL, NULL);
}

/* Forgets steps that began earlier, and requests that had ended by then. */
static vt_status forget_before(story_source *s, int64_t since_ns, vt_err *err)
{
    vt_step_event *step = (vt_step_event *)s->step;
    vt_request_event *request = (vt_request_event *)s->request;
    uint64_t first = UINT64_MAX, n_steps = 0, n_requests = 0, n_ended = 0;
    uint64_t *ended = vt_calloc(s->n_requests + 1, sizeof *ended);
    if (!ended)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    for (uint64_t i = 0; i < s->n_steps; i++)
        if (step[i].kind == VT_STEP_RAN && step[i].ran.begin_ns >= since_ns && step[i].step < first)
            first = step[i].step;
    if (first == UINT64_MAX) {
        free(ended);
        return vt_fail(err, VT_ERR_USAGE, "no step has begun since then");
    }
    for (uint64_t i = 0; i < s->n_steps; i++)
        if (step[i].step >= first)
            step[n_steps++] = step[i];
    for (uint64_t i = 0; i < s->n_requests; i++)
        if (request[i].kind == VT_REQ_FINISH && request[i].finish.at_ns < since_ns)
            ended[n_ended++] = request[i].request;
    qsort(ended, n_ended, sizeof *ended, by_number);
    for (uint64_t i = 0; i < s->n_requests; i++)
        if (!bsearch(&request[i].request, ended, n_ended, sizeof *ended, by_number))
            request[n_requests++] = request[i];
    s->n_steps = n_steps;
    s->n_requests = n_requests;
    free(ended);
    return VT_OK;
}

static vt_status collect(making *m, vt_err *err)
{
    vt_recording r;
    vt_engine *e = m->engine;
    story_input *in = &m->in;
    copies *c = &m->c;
    TRY(vt_engine_recording(e, &r, err));
    in->model = r.model;
    in->program = r.program;
    in->n_pages = r.n_pages;
    in->n_windows = r.n_windows;
    in->window = r.window;
    in->window_page_bytes = vt_executor_value(r.executor, "kv_window_page_bytes", 0);
    in->device = r.executor->name;
    in->kv_bytes = vt_executor_value(r.executor, "kv_bytes", NAN) -
                   in->n_windows * in->window_page_bytes;
    in->packed_bytes = vt_executor_value(r.executor, "packed_bytes", 0);
    c->n = vt_engine_sources(e, NULL, 0);
    c->facts = vt_calloc((size_t)c->n + 1, sizeof *c->facts);
    c->source = vt_calloc((size_t)c->n + 1, sizeof *c->source);
    if (!c->facts || !c->source)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    vt_engine_sources(e, c->facts, c->n);
    for (int32_t i = 0; i < c->n; i++)
        TRY(copy_source(&c->facts[i], &c->source[i], err));
    for (int32_t i = 0; i < c->n && m->since_ns; i++)
        if (c->facts[i].kind == VT_SOURCE_ENGINE)
            TRY(forget_before(&c->source[i], m->since_ns, err));
    in->source = c->source;
    in->n_sources = c->n;
    if (story_count(in, VT_SOURCE_WORKER) > STORY_MAX_WORKERS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "stories are told of at most %d threads, not of %d",
                       STORY_MAX_WORKERS, story_count(in, VT_SOURCE_WORKER));
    const vt_radix *radix = &vt_engine_scheduler(e)->radix;
    TRY(vt_radix_nodes_init(&m->tree, radix->pool.n_pages, err));
    vt_radix_nodes_copy(&m->tree, radix);
    in->tree = &m->tree;
    in->event_cost_ns = event_cost_ns();
    TRY(get_roofs(c, false, &in->roofs, err));
    vt_efficiencies_read(in->efficiencies, in->roofs.key);
    m->n_known = in->efficiencies->n;
    if (!in->roofs.is_gpu && m->measures == STORY_MEASURES) {
        in->learn = learn;
        in->learn_until_ns = vt_now_ns() + learn_ns;
    }
    return VT_OK;
}

/* If an op beats its roof, the roofs were measured on a busy machine. They are measured again,
 * once, and the story is made with the new ones. */
static vt_status build(making *m, vt_request_id id, char **json, size_t *len, vt_err *err)
{
    vt_efficiencies efficiencies = {0};
    char *text = NULL;
    size_t n = 0;
    bool beaten = false;
    m->in.efficiencies = &efficiencies;
    vt_status status = collect(m, err);
    if (status == VT_OK)
        status = story_build(&m->in, id, &text, &n, &beaten, err);
    if (status == VT_OK && beaten && m->measures == STORY_MEASURES) {
        free(text);
        text = NULL;
        status = get_roofs(&m->c, true, &m->in.roofs, err);
        if (status == VT_OK)
            status = story_build(&m->in, id, &text, &n, NULL, err);
    }
    release(&m->c);
    vt_radix_nodes_release(&m->tree);
    if (efficiencies.n > m->n_known)
        vt_efficiencies_write(&efficiencies, m->in.roofs.key);
    vt_efficiencies_release(&efficiencies);
    if (status == VT_OK) {
        *json = text;
        *len = n;
    }
    return status;
}

static vt_status make(making *m, vt_request_id id, char **json, size_t *len, vt_err *err)
{
    TRY(vt_engine_hold(m->engine, err));
    vt_status status = build(m, id, json, len, err);
    vt_engine_release(m->engine);
    return status;
}

vt_status story_of_engine(vt_engine *e, vt_request_id id, story_measures measures, char **json,
                          size_t *len, vt_err *err)
{
    making m = {.engine = e, .measures = measures};
    return make(&m, id, json, len, err);
}

vt_status story_of_engine_since(vt_engine *e, int64_t since_ns, char **json, size_t *len,
                                vt_err *err)
{
    making m = {.engine = e, .measures = STORY_MEASURES_NOTHING, .since_ns = since_ns};
    return make(&m, 0, json, len, err);
}

vt_status vt_engine_story(vt_engine *e, vt_request_id id, char **json, size_t *len, vt_err *err)
{
    TRY(vt_check_pointer(e, "vt_engine_story: the engine", err));
    TRY(vt_check_pointer(json, "vt_engine_story: json", err));
    TRY(vt_check_pointer(len, "vt_engine_story: len", err));
    return story_of_engine(e, id, STORY_MEASURES, json, len, err);
}

vt_status story_prepare(vt_engine *e, vt_err *err)
{
    vt_roofs roofs;
    copies c = {.n = vt_engine_sources(e, NULL, 0)};
    c.facts = vt_calloc((size_t)c.n + 1, sizeof *c.facts);
    if (!c.facts)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the roofs of the machine");
    vt_status status = vt_engine_hold(e, err);
    if (status == VT_OK) {
        vt_engine_sources(e, c.facts, c.n);
        status = get_roofs(&c, false, &roofs, err);
        vt_engine_release(e);
    }
    release(&c);
    return status;
}
