/* Reads a story onto one axis of time (trace.h). */
#include "story/forms/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/trace.h"
#include "story/forms.h"

const char *const trace_track_names[TRACE_TRACKS] = {
    "request", "steps", "calls", "kernels recorded", "kernels beside", "kernels beside those"};

static const char *const step_columns[] = {"id", "begin_ms", "ms", NULL};
static const char *const call_columns[] = {"step", "label", "begin_us", "us", NULL};
static const char *const kernel_columns[] = {"label", "begin_us", "end_us", "kind", NULL};
static const char *const step_facts[] = {"id", "tokens", "seqs", "decodes", "new", "kv"};
static const char *const call_facts[] = {"step"};
static const char *const page_kinds[] = {"held", "cached", "free"};
static const char *const lane_value[] = {"share"};

static const char *keep(trace *t, const char *text)
{
    const char *copy = vt_arena_strdup(&t->arena, text, strlen(text));
    return copy ? copy : "";
}

static void add_timeline(trace *t, const json_t *story)
{
    size_t i;
    json_t *e;
    char text[STORY_TEXT];
    json_array_foreach(story_get(story, "timeline"), i, e)
    {
        double at = story_num(e, "at_ms");
        if (!isfinite(at))
            continue;
        trace_span *s = &t->span[t->n_spans++];
        *s = (trace_span){.track = TRACE_REQUEST,
                          .begin_us = at * 1e3,
                          .us = story_num(e, "ms") * 1e3,
                          .step = -1};
        s->name = keep(t, story_text(e, "event", text));
        s->text = keep(t, story_text(e, "text", text));
    }
}

static void add_step(trace *t, const json_t *steps, size_t i)
{
    double at = story_cell(steps, "begin_ms", i), ms = story_cell(steps, "ms", i);
    if (!isfinite(at) || !isfinite(ms))
        return;
    trace_span *s = &t->span[t->n_spans++];
    *s = (trace_span){.track = TRACE_STEPS,
                      .begin_us = at * 1e3,
                      .us = ms * 1e3,
                      .text = "",
                      .fact_name = step_facts,
                      .n_facts = TRACE_FACTS};
    s->name = story_cell(steps, "prefill", i) > 0 ? "prefill step" : "decode step";
    for (int k = 0; k < TRACE_FACTS; k++)
        s->fact[k] = story_cell(steps, step_facts[k], i);
    s->step = fabs(s->fact[0]) < 9e15 ? (int64_t)s->fact[0] : -1;
    trace_count *c = &t->count[t->n_counts++];
    *c = (trace_count){
        .name = "pages", .at_us = (at + ms) * 1e3, .value_name = page_kinds, .n_values = 3};
    for (int k = 0; k < 3; k++)
        c->value[k] = fmax(0, story_cell(steps, page_kinds[k], i));
}

static void add_calls(trace *t, const json_t *story, size_t n_calls, size_t n_steps)
{
    const json_t *steps = story_get(story, "steps"), *calls = story_get(story, "calls");
    const json_t *labels = story_get(calls, "labels");
    size_t at = 0;
    char text[STORY_TEXT];
    for (size_t i = 0; i < n_calls; i++) {
        double step = story_cell(calls, "step", i), label = story_cell(calls, "label", i),
               begin = story_cell(calls, "begin_us", i), us = story_cell(calls, "us", i);
        /* rows are in the order of their steps */
        while (at < n_steps && !(story_cell(steps, "id", at) >= step))
            at++;
        double step_at = story_cell(steps, "begin_ms", at) * 1e3;
        if (at == n_steps || story_cell(steps, "id", at) != step || !isfinite(begin) ||
            !isfinite(us) || !isfinite(step_at) ||
            !(label >= 0 && label < (double)json_array_size(labels)))
            continue;
        trace_span *s = &t->span[t->n_spans++];
        *s = (trace_span){.track = TRACE_CALLS,
                          .begin_us = step_at + begin,
                          .us = us,
                          .text = "",
                          .step = fabs(step) < 9e15 ? (int64_t)step : -1,
                          .fact_name = call_facts,
                          .fact = {step},
                          .n_facts = 1};
        s->name = keep(t, story_clean(json_array_get(labels, (size_t)label), text));
    }
}

/* ---- kernels as they were recorded ---- */

/* "L03.linear.qkv", or what moved bytes. */
static const char *kernel_name(trace *t, const json_t *labels, const json_t *newest, size_t i)
{
    char text[STORY_TEXT];
    double label = story_cell(newest, "label", i), kind = story_cell(newest, "kind", i);
    if (label >= 0 && label < (double)json_array_size(labels))
        return keep(t, story_clean(json_array_get(labels, (size_t)label), text));
    return kind == VT_ACTIVITY_COPY ? "copy" : kind == VT_ACTIVITY_FILL ? "fill" : "a kernel";
}

/* The records of the newest step of a phase, which are in the order of their begins. Its first one
 * begins with the step. Those of rank `rank` lie on one track, those of a single GPU on as many as
 * overlap (rank -1). */
static void add_kernels(trace *t, const json_t *story, const json_t *newest, int32_t rank)
{
    enum { KERNEL_TRACKS = TRACE_TRACKS - TRACE_KERNELS };
    const json_t *steps = story_get(story, "steps"),
                 *labels = story_get(story_get(story, "calls"), "labels");
    size_t n = story_rows(newest, kernel_columns), n_steps = story_rows(steps, step_columns),
           at = 0;
    double step = story_num(newest, "step"), free_us[KERNEL_TRACKS] = {0};
    while (at < n_steps && story_cell(steps, "id", at) != step)
        at++;
    double step_at = story_cell(steps, "begin_ms", at) * 1e3;
    for (size_t i = 0; i < n && at < n_steps && isfinite(step_at); i++) {
        double begin = story_cell(newest, "begin_us", i), end = story_cell(newest, "end_us", i);
        int32_t k = rank < 0 ? 0 : rank;
        while (rank < 0 && k + 1 < KERNEL_TRACKS && free_us[k] > begin)
            k++;
        begin = fmax(begin, free_us[k]);
        if (!isfinite(begin) || !(end >= begin))
            continue;
        free_us[k] = end;
        t->n_tracks = t->n_tracks > TRACE_KERNELS + k ? t->n_tracks : TRACE_KERNELS + k + 1;
        t->span[t->n_spans++] = (trace_span){.track = (trace_track)(TRACE_KERNELS + k),
                                             .name = kernel_name(t, labels, newest, i),
                                             .begin_us = step_at + begin,
                                             .us = end - begin,
                                             .text = "",
                                             .step = fabs(step) < 9e15 ? (int64_t)step : -1,
                                             .fact_name = call_facts,
                                             .fact = {step},
                                             .n_facts = 1};
    }
}

static const json_t *newest_of(const json_t *phases, size_t i)
{
    return story_get(json_array_get(phases, i), "newest");
}

static int by_track(const void *a, const void *b)
{
    const trace_span *x = a, *y = b;
    if (x->track != y->track)
        return x->track < y->track ? -1 : 1;
    return (x->begin_us > y->begin_us) - (x->begin_us < y->begin_us);
}

/* Each rank's phases stand together. As many ranks are drawn as there are tracks. */
static void add_phases(trace *t, const json_t *story, const json_t *phases, size_t n_phases)
{
    size_t first = t->n_spans;
    int32_t rank = -1;
    char before[STORY_TEXT] = "", now[STORY_TEXT];
    for (size_t i = 0; i < n_phases; i++) {
        const char *name = story_text(json_array_get(phases, i), "rank", now);
        rank += name[0] && strcmp(name, before) != 0;
        snprintf(before, sizeof before, "%s", name);
        if (rank < TRACE_TRACKS - TRACE_KERNELS)
            add_kernels(t, story, newest_of(phases, i), rank);
    }
    qsort(t->span + first, t->n_spans - first, sizeof *t->span, by_track);
}

/* The points of a lane: a time and a number each. */
static size_t lane_points(const json_t *lane)
{
    size_t n = json_array_size(story_get(lane, "begin_ms")),
           m = json_array_size(story_get(lane, "values"));
    return n < m ? n : m;
}

static void add_lane(trace *t, const json_t *lane)
{
    char text[STORY_TEXT];
    const char *name = keep(t, story_text(lane, "name", text));
    size_t n = lane_points(lane);
    for (size_t k = 0; k < n; k++) {
        const json_t *at = json_array_get(story_get(lane, "begin_ms"), k),
                     *v = json_array_get(story_get(lane, "values"), k);
        if (json_is_number(at) && (json_is_number(v) || json_is_null(v)))
            t->count[t->n_counts++] = (trace_count){
                .name = name,
                .at_us = json_number_value(at) * 1e3,
                .value_name = lane_value,
                .value = {json_is_null(v) ? NAN : json_number_value(v)},
                .n_values = 1};
    }
}

vt_status trace_of_story(const json_t *story, trace *out, vt_err *err)
{
    const json_t *steps = story_get(story, "steps"), *lane;
    const json_t *lanes = story_get(story_get(story, "lanes"), "items");
    size_t n_steps = story_rows(steps, step_columns), i,
           n_calls = story_rows(story_get(story, "calls"), call_columns), n_points = 0;
    size_t n_events = json_array_size(story_get(story, "timeline")), n_kernels = 0;
    const json_t *phases = story_get(story_get(story, "activity"), "phases");
    size_t n_phases = json_array_size(phases);
    n_phases = n_phases < STORY_ROWS ? n_phases : STORY_ROWS; /* prefill and decode of each rank */
    char name[STORY_TEXT];
    *out = (trace){0};
    vt_arena_init(&out->arena, 0);
    json_array_foreach(lanes, i, lane) { n_points += i < STORY_ROWS ? lane_points(lane) : 0; }
    for (i = 0; i < n_phases; i++)
        n_kernels += story_rows(newest_of(phases, i), kernel_columns);
    out->n_tracks = TRACE_KERNELS;
    out->span = vt_arena_alloc(&out->arena, n_events + n_steps + n_calls + n_kernels + 1,
                               sizeof *out->span);
    out->count = vt_arena_alloc(&out->arena, n_steps + n_points + 1, sizeof *out->count);
    if (!out->span || !out->count) {
        trace_release(out);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a trace");
    }
    out->process = keep(out, story_text(story_get(story, "model"), "name", name));
    add_timeline(out, story);
    for (i = 0; i < n_steps; i++)
        add_step(out, steps, i);
    add_calls(out, story, n_calls, n_steps);
    add_phases(out, story, phases, n_phases);
    json_array_foreach(lanes, i, lane)
    {
        if (i < STORY_ROWS)
            add_lane(out, lane);
    }
    return VT_OK;
}

void trace_release(trace *t) { vt_arena_release(&t->arena); }

vt_status story_export(const story_file *f, const char *form, vt_buf *out, vt_err *err)
{
    json_t *story = NULL;
    trace t;
    TRY(story_load(f->name, f->json, f->len, &story, err));
    vt_status status = trace_of_story(story, &t, err);
    json_decref(story);
    if (status != VT_OK)
        return status;
    if (strcmp(form, "pftrace") == 0)
        trace_to_pftrace(&t, out);
    else if (strcmp(form, "speedscope") == 0)
        trace_to_speedscope(&t, f->name, out);
    else if (strcmp(form, "folded") == 0)
        trace_to_folded(&t, out);
    else
        trace_to_chrome(&t, out);
    trace_release(&t);
    return out->failed ? vt_fail(err, VT_ERR_MEMORY, "out of memory for a trace") : VT_OK;
}
