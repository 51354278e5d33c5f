/* A trace in the Trace Event Format's JSON, for chrome://tracing and Perfetto's page. */
#include <math.h>

#include "base/json_write.h"
#include "story/forms/trace.h"

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

static void put_span(vt_json *w, const trace_span *s)
{
    open_event(w, s->name, isfinite(s->us) ? "X" : "i", 1 + (int)s->track, s->begin_us);
    if (isfinite(s->us))
        vt_json_fixed(w, "dur", s->us, 3);
    else
        vt_json_string(w, "s", "t"); /* drawn on its own track */
    vt_json_open(w, "args", '{');
    if (s->track == TRACE_REQUEST)
        vt_json_string(w, "text", s->text);
    for (int32_t k = 0; k < s->n_facts; k++)
        vt_json_real(w, s->fact_name[k], s->fact[k]);
    vt_json_close(w);
    vt_json_close(w);
}

static void put_count(vt_json *w, const trace_count *c)
{
    open_event(w, c->name, "C", 0, c->at_us);
    vt_json_open(w, "args", '{');
    for (int32_t k = 0; k < c->n_values; k++)
        vt_json_real(w, c->value_name[k], c->value[k]);
    vt_json_close(w);
    vt_json_close(w);
}

void trace_to_chrome(const trace *t, vt_buf *out)
{
    vt_json w;
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_string(&w, "displayTimeUnit", "ms");
    vt_json_open(&w, "traceEvents", '[');
    put_name(&w, "process_name", 0, *t->process ? t->process : "vitrine");
    for (int k = 0; k < t->n_tracks; k++)
        put_name(&w, "thread_name", 1 + k, trace_track_names[k]);
    for (size_t i = 0; i < t->n_spans; i++)
        put_span(&w, &t->span[i]);
    for (size_t i = 0; i < t->n_counts; i++)
        if (isfinite(t->count[i].value[0]))
            put_count(&w, &t->count[i]);
    vt_json_close(&w);
    vt_json_close(&w);
    out->failed |= !vt_json_end(&w);
    vt_buf_putc(out, '\n');
}
