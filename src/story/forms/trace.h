/* A story on one axis of time: spans, moments and counters, from which traces of every form are
 * written (chrome.c, pftrace.c, flame.c) and the timeline of the HTML page (page/html.c).
 *
 *   track     from                       as
 *   request   timeline                   spans where an event lasts, else moments
 *   steps     steps                      spans
 *   calls     calls                      spans, each below the step that ran it
 *   kernels   activity: newest           spans, as CUPTI recorded them in a step of each phase;
 *                                        what overlaps, or another rank's, lies on further tracks
 *   pages     steps: held, cached, free  a counter of three values
 *   lanes     lanes                      a counter each
 *
 * Times are microseconds from the request's arrival, as in the story. */
#ifndef VT_STORY_TRACE_H
#define VT_STORY_TRACE_H

#include "base/buf.h"
#include "base/mem.h"
#include "story/read.h"

typedef enum trace_track {
    TRACE_REQUEST,
    TRACE_STEPS,
    TRACE_CALLS,
    TRACE_KERNELS,
    TRACE_BESIDE,   /* kernels that began before the one in front of them had ended */
    TRACE_BESIDE_2, /* as many as overlap on a GPU at most; a fourth begins where it finds room */
    TRACE_TRACKS
} trace_track;

enum { TRACE_FACTS = 6 };

typedef struct trace_span {
    trace_track track;
    const char *name;
    double begin_us, us;          /* us is NAN: a moment, which only the track of the request has */
    const char *text;             /* of the request's track; "" elsewhere */
    int64_t step;                 /* the step's number on the other tracks; -1 on the request's */
    const char *const *fact_name; /* [n_facts] */
    double fact[TRACE_FACTS];     /* NAN where the story has none */
    int32_t n_facts;
} trace_span;

typedef struct trace_count {
    const char *name;
    double at_us;
    const char *const *value_name; /* [n_values] */
    double value[3];               /* NAN: from here on it is not known */
    int32_t n_values;
} trace_count;

typedef struct trace {
    vt_arena arena;
    const char *process; /* the model's name */
    trace_span *span;    /* track by track; calls in the order of their steps */
    size_t n_spans;
    int32_t n_tracks;   /* TRACE_KERNELS, or more where kernels were recorded */
    trace_count *count; /* those of one name stand together */
    size_t n_counts;
} trace;

/* Reads a story; all texts are copied into the arena. trace_release it. */
vt_status trace_of_story(const json_t *story, trace *out, vt_err *err);
void trace_release(trace *t);

extern const char *const trace_track_names[TRACE_TRACKS];

/* The folded form's name for the time of a step whose calls were not timed. */
#define TRACE_UNTIMED "calls not timed"

/* The forms. Each appends to out; out of memory shows in out->failed. */
void trace_to_chrome(const trace *t, vt_buf *out);
void trace_to_pftrace(const trace *t, vt_buf *out);
void trace_to_speedscope(const trace *t, const char *name, vt_buf *out);
void trace_to_folded(const trace *t, vt_buf *out);

#endif
