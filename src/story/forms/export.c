/* A story.json as a trace for Perfetto's page and chrome://tracing: the Trace Event Format's JSON.
 *
 *   track     from                       as
 *   request   timeline                   spans where an event lasts, else instants
 *   steps     steps                      spans
 *   calls     calls                      spans, each below the step that ran it
 *   pages     steps: held, cached, free  counters
 *   lanes     lanes                      counters
 *
 * Times are microseconds from the request's arrival, as in the story. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/json_write.h"
#include "story/forms.h"
#include "story/read.h"

enum { TRACK_REQUEST = 1, TRACK_STEPS, TRACK_CALLS };

/* Opens an event; the caller adds "args" and closes it. */
static void open_event(vt_json *w, const char *name, const char *phase, int track, double ts_us)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", name);
    vt_json_string(w, "ph", phase);
    vt_json_int(w, "pid", 1);
    vt_json_int(w, "tid", track);
    if (isfinite(ts_us))
        vt_json_fixed(w, "ts", ts_us, 3);
}

static void put_name(vt_json *w, const char *what, int track, const char *name)
{
    open_event(w, what, "M", track, NAN);
    vt_json_open(w, "args", '{');
    vt_json_string(w, "name", name);
    vt_json_close(w);
    vt_json_close(w);
}

static void put_names(vt_json *w, const json_t *story)
{
    char name[STORY_TEXT];
    story_text(story_get(story, "model"), "name", name);
    put_name(w, "process_name", 0, *name ? name : "vitrine");
    put_name(w, "thread_name", TRACK_REQUEST, "request");
    put_name(w, "thread_name", TRACK_STEPS, "steps");
    put_name(w, "thread_name", TRACK_CALLS, "calls");
}

static void put_timeline(vt_json *w, const json_t *story)
{
    size_t i;
    json_t *e;
    char event[STORY_TEXT], note[STORY_TEXT];
    json_array_foreach(story_get(story, "timeline"), i, e)
    {
        double at = story_num(e, "at_ms"), ms = story_num(e, "ms");
        if (!isfinite(at))
            continue;
        open_event(w, story_text(e, "event", event), isfinite(ms) ? "X" : "i", TRACK_REQUEST,
                   at * 1e3);
        if (isfinite(ms))
            vt_json_fixed(w, "dur", ms * 1e3, 3);
        else
            vt_json_string(w, "s", "t"); /* drawn on its own track */
        vt_json_open(w, "args", '{');
        vt_json_string(w, "text", story_text(e, "text", note));
        vt_json_close(w);
        vt_json_close(w);
    }
}

static const char *const step_columns[] = {"id", "begin_ms", "ms", NULL};

static void put_step(vt_json *w, const json_t *steps, size_t i)
{
    static const char *const fact[] = {"id", "tokens", "seqs", "decodes", "new", "kv"};
    double at = story_cell(steps, "begin_ms", i), ms = story_cell(steps, "ms", i);
    if (!isfinite(at) || !isfinite(ms))
        return;
    open_event(w, story_cell(steps, "prefill", i) > 0 ? "prefill step" : "decode step", "X",
               TRACK_STEPS, at * 1e3);
    vt_json_fixed(w, "dur", ms * 1e3, 3);
    vt_json_open(w, "args", '{');
    for (size_t k = 0; k < sizeof fact / sizeof fact[0]; k++)
        vt_json_real(w, fact[k], story_cell(steps, fact[k], i));
    vt_json_close(w);
    vt_json_close(w);
    open_event(w, "pages", "C", 0, (at + ms) * 1e3);
    vt_json_open(w, "args", '{');
    for (const char *const *k = (const char *const[]){"held", "cached", "free", NULL}; *k; k++)
        vt_json_real(w, *k, fmax(0, story_cell(steps, *k, i)));
    vt_json_close(w);
    vt_json_close(w);
}

static void put_calls(vt_json *w, const json_t *story, size_t n_steps)
{
    static const char *const columns[] = {"step", "label", "begin_us", "us", NULL};
    const json_t *steps = story_get(story, "steps"), *calls = story_get(story, "calls");
    const json_t *labels = story_get(calls, "labels");
    size_t n = story_rows(calls, columns), at = 0;
    for (size_t i = 0; i < n; i++) {
        double step = story_cell(calls, "step", i), label = story_cell(calls, "label", i),
               begin = story_cell(calls, "begin_us", i), us = story_cell(calls, "us", i);
        /* rows are in the order of their steps */
        while (at < n_steps && !(story_cell(steps, "id", at) >= step))
            at++;
        if (at == n_steps || story_cell(steps, "id", at) != step || !isfinite(begin) ||
            !isfinite(us) || !(label >= 0 && label < (double)json_array_size(labels)))
            continue;
        const char *name = json_string_value(json_array_get(labels, (size_t)label));
        open_event(w, name ? name : "", "X", TRACK_CALLS,
                   story_cell(steps, "begin_ms", at) * 1e3 + begin);
        vt_json_fixed(w, "dur", us, 3);
        vt_json_open(w, "args", '{');
        vt_json_real(w, "step", step);
        vt_json_close(w);
        vt_json_close(w);
    }
}

static void put_lanes(vt_json *w, const json_t *story)
{
    size_t i;
    json_t *lane;
    char name[STORY_TEXT];
    json_array_foreach(story_get(story_get(story, "lanes"), "items"), i, lane)
    {
        const json_t *at = story_get(lane, "begin_ms"), *v = story_get(lane, "values");
        if (i >= STORY_ROWS)
            break;
        for (size_t k = 0; k < json_array_size(at) && k < json_array_size(v); k++) {
            const json_t *t = json_array_get(at, k), *x = json_array_get(v, k);
            if (!json_is_number(t) || !json_is_number(x))
                continue;
            open_event(w, story_text(lane, "name", name), "C", 0, json_number_value(t) * 1e3);
            vt_json_open(w, "args", '{');
            vt_json_real(w, "share", json_number_value(x));
            vt_json_close(w);
            vt_json_close(w);
        }
    }
}

vt_status story_export_chrome(const char *name, const char *json, size_t len, vt_buf *out,
                              vt_err *err)
{
    json_t *story = NULL;
    vt_json w;
    TRY(story_load(name, json, len, &story, err));
    const json_t *steps = story_get(story, "steps");
    size_t n_steps = story_rows(steps, step_columns);
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_string(&w, "displayTimeUnit", "ms");
    vt_json_open(&w, "traceEvents", '[');
    put_names(&w, story);
    put_timeline(&w, story);
    for (size_t i = 0; i < n_steps; i++)
        put_step(&w, steps, i);
    put_calls(&w, story, n_steps);
    put_lanes(&w, story);
    vt_json_close(&w);
    vt_json_close(&w);
    json_decref(story);
    return vt_json_end(&w) ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a trace");
}
