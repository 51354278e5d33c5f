/* Steps, calls and lanes of a story.json (story/places.h, docs/story-format.md).
 *
 * Rows are written by column, each column on one line: a list of 4,096 calls takes 100 KB so, and
 * three times as much as objects.
 *
 *   "calls": {"count": 3, "left_out": 0, "why": null, "tag": "measured",
 *             "labels": ["L00.rmsnorm", "L00.linear.qkv"],
 *             "columns": {"step": [7, 7, 8], "label": [0, 1, 0],
 *                         "begin_us": [0, 1.2, 0], "us": [1.2, 8.1, 1.3]}} */
#include "story/places.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/probe.h"
#include "story/numbers.h"

/* ---- columns ---- */

static void put_number(vt_buf *b, bool first, double v, int digits)
{
    char text[400];
    vt_buf_puts(b, first ? "[" : ",");
    snprintf(text, sizeof text, "%.*f", digits, v);
    size_t n = strlen(text);
    if (strchr(text, '.')) {
        while (text[n - 1] == '0')
            n--;
        n -= text[n - 1] == '.';
    }
    if (isfinite(v))
        vt_buf_add(b, text, n);
    else
        vt_buf_puts(b, "null");
}

/* A list on one line. */
static void put_column(vt_json *w, const char *key, const double *v, int32_t n, int digits)
{
    vt_buf b = {0};
    for (int32_t i = 0; i < n; i++)
        put_number(&b, i == 0, v[i], digits);
    vt_buf_puts(&b, n ? "]" : "[]");
    vt_json_raw(w, key, b.data ? b.data : "[]", b.data ? b.len : 2);
    w->out->failed |= b.failed;
    vt_buf_release(&b);
}

/* The members that all lists begin with. */
static void put_head(vt_json *w, const char *key, int32_t count, int32_t left_out, const char *why)
{
    vt_json_open(w, key, '{');
    vt_json_int(w, "count", count);
    vt_json_int(w, "left_out", left_out);
    vt_json_string(w, "why", count ? NULL : why);
    vt_json_string(w, "tag", count ? measured : "n/a");
}

/* ---- which steps ---- */

/* The time that begin_ms of steps and lanes counts from. */
static int64_t story_zero(const story_record *r)
{
    if (r->mine)
        return r->mine->arrive_ns;
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen)
            return r->step[i].device.begin_ns;
    return 0;
}

/* The chosen steps, at most STORY_MAX_STEPS: where there are more, the first quarter of the room
 * holds the oldest, which have the prompt, and the rest the newest. Returns how many; *left_out is
 * how many are between the two. NULL arrays: out of memory. */
static int32_t pick_steps(story_record *r, const step_record **out, int32_t *left_out)
{
    enum { OLDEST = STORY_MAX_STEPS / 4 };
    int32_t all = 0, n = 0, at = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        all += r->step[i].chosen;
    *left_out = all > STORY_MAX_STEPS ? all - STORY_MAX_STEPS : 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (!r->step[i].chosen)
            continue;
        if (at < OLDEST || at >= OLDEST + *left_out)
            out[n++] = &r->step[i];
        at++;
    }
    return n;
}

typedef enum step_column {
    STEP_ID,
    STEP_BEGIN,
    STEP_MS,
    STEP_PREFILL,
    STEP_TOKENS,
    STEP_SEQS,
    STEP_DECODES,
    STEP_NEW,
    STEP_KV,
    STEP_HELD,
    STEP_CACHED,
    STEP_FREE,
    STEP_CALLS,
    STEP_COLUMNS
} step_column;

static double step_value(const step_record *s, step_column c, int64_t zero)
{
    switch (c) {
    case STEP_ID:
        return (double)s->id;
    case STEP_BEGIN:
        return (double)(s->device.begin_ns - zero) * 1e-6;
    case STEP_MS:
        return span_s(s->device) * 1e3;
    case STEP_PREFILL:
        return s->prefill;
    case STEP_TOKENS:
        return s->n_tokens;
    case STEP_SEQS:
        return s->n_seqs;
    case STEP_DECODES:
        return s->n_decode;
    case STEP_NEW:
        return s->q_len;
    case STEP_KV:
        return s->kv_len;
    case STEP_HELD:
        return s->pages_held;
    case STEP_CACHED:
        return s->pages_cached;
    case STEP_FREE:
        return s->pages_free;
    case STEP_CALLS:
        return s->n_call;
    case STEP_COLUMNS:
        break;
    }
    return NAN;
}

static void put_steps(vt_json *w, const story_record *r, const step_record *const *step, int32_t n,
                      int32_t left_out, double *v)
{
    static const struct {
        const char *key;
        int digits;
    } column[STEP_COLUMNS] = {
        [STEP_ID] = {"id", 0},           [STEP_BEGIN] = {"begin_ms", 4}, [STEP_MS] = {"ms", 4},
        [STEP_PREFILL] = {"prefill", 0}, [STEP_TOKENS] = {"tokens", 0},  [STEP_SEQS] = {"seqs", 0},
        [STEP_DECODES] = {"decodes", 0}, [STEP_NEW] = {"new", 0},        [STEP_KV] = {"kv", 0},
        [STEP_HELD] = {"held", 0},       [STEP_CACHED] = {"cached", 0},  [STEP_FREE] = {"free", 0},
        [STEP_CALLS] = {"calls", 0},
    };
    put_head(w, "steps", n, left_out, "no step of it is in the recorder's rings");
    vt_json_open(w, "columns", '{');
    for (int c = 0; c < STEP_COLUMNS; c++) {
        for (int32_t i = 0; i < n; i++)
            v[i] = step_value(step[i], (step_column)c, story_zero(r));
        put_column(w, column[c].key, v, n, column[c].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* ---- calls ---- */

/* Marks the steps whose calls are written, whole steps as long as there is room: the first one that
 * computes prompt tokens, then the newest. Returns how many calls those have, and in *left_out how
 * many the others have. */
static int32_t pick_calls(const step_record *const *step, int32_t n, bool *picked,
                          int32_t *left_out)
{
    int32_t calls = 0;
    *left_out = 0;
    memset(picked, 0, (size_t)n * sizeof *picked);
    for (int32_t i = 0; i < n && calls == 0; i++)
        if (step[i]->prefill && step[i]->n_call > 0 && step[i]->n_call <= STORY_MAX_CALLS) {
            picked[i] = true;
            calls = step[i]->n_call;
        }
    bool room = true;
    for (int32_t i = n - 1; i >= 0; i--) {
        if (picked[i])
            continue;
        room = room && calls + step[i]->n_call <= STORY_MAX_CALLS;
        picked[i] = room && step[i]->n_call > 0;
        *(room ? &calls : left_out) += step[i]->n_call;
    }
    return calls;
}

/* The label of every call of the program; column "label" holds indices of this list. */
static void put_labels(vt_json *w, const vt_program *p)
{
    vt_json_open(w, "labels", '[');
    int indent = w->indent;
    w->indent = -1;
    for (int32_t i = 0; i < p->n_calls; i++)
        vt_json_string(w, NULL, p->call[i].label);
    vt_json_close(w);
    w->indent = indent;
}

static void put_calls(vt_json *w, const story_input *in, const story_record *r,
                      const step_record *const *step, int32_t n, bool *picked, double *v)
{
    static const char *const key[] = {"step", "label", "begin_us", "us"};
    static const int digits[] = {0, 0, 2, 2};
    int32_t left_out = 0, count = pick_calls(step, n, picked, &left_out);
    put_head(w, "calls", count, left_out, "no step of it was timed call by call");
    put_labels(w, in->program);
    vt_json_open(w, "columns", '{');
    for (int c = 0; c < 4; c++) {
        int32_t k = 0;
        for (int32_t i = 0; i < n; i++) {
            const call_time *t = &r->call[step[i]->first_call];
            double at = step[i]->n_call && picked[i]
                            ? (double)(t[0].begin_ns - step[i]->device.begin_ns) * 1e-3
                            : 0;
            for (int32_t m = 0; picked[i] && m < step[i]->n_call; m++) {
                v[k++] = c == 0   ? (double)step[i]->id
                         : c == 1 ? t[m].call
                         : c == 2 ? at
                                  : t[m].s * 1e6;
                at += t[m].s * 1e6;
            }
        }
        put_column(w, key[c], v, k, digits[c]);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* ---- lanes ---- */

/* What share of the workers' time went to calls, over the steps whose calls are known; each value
 * is the mean of several steps where there are more than STORY_MAX_LANE. */
static void put_busy(vt_json *w, const story_record *r, const step_record *const *step, int32_t n,
                     double *v)
{
    int32_t out = n < STORY_MAX_LANE ? n : STORY_MAX_LANE;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", "busy");
    vt_json_string(w, "what", "workers in calls, not waiting at barriers");
    for (int k = 0; k < 2; k++) {
        for (int32_t c = 0; c < out; c++) {
            int32_t from = (int32_t)((int64_t)c * n / out),
                    to = (int32_t)((int64_t)(c + 1) * n / out);
            double busy = 0, all = 0;
            for (int32_t i = from; i < to; i++) {
                busy += step[i]->busy_s;
                all += step[i]->busy_s + step[i]->wait_s;
            }
            v[c] = k == 0 ? (double)(step[from]->device.begin_ns - story_zero(r)) * 1e-6
                          : (all > 0 ? busy / all : NAN);
        }
        put_column(w, k == 0 ? "begin_ms" : "values", v, out, 4);
    }
    vt_json_string(w, "tag", measured);
    vt_json_close(w);
}

static void put_lanes(vt_json *w, const story_input *in, const story_record *r,
                      const step_record **step, int32_t n, double *v)
{
    int32_t known = 0;
    for (int32_t i = 0; i < n; i++)
        if (step[i]->busy_s + step[i]->wait_s > 0)
            step[known++] = step[i];
    vt_json_open(w, "lanes", '{');
    vt_json_open(w, "items", '[');
    if (!story_gpu(in) && known > 0)
        put_busy(w, r, step, known, v);
    vt_json_close(w);
    vt_json_string(w, "why",
                   story_gpu(in) ? "what SMs, tensor cores and memory did over time is told by the "
                                   "GPU's counters, which are not read yet"
                                 : "the matrix unit's and the memory's work over time is told by "
                                   "hardware counters, which are not read yet");
    vt_json_close(w);
}

/* ---- tiers, ranks ---- */

static void put_tier(vt_json *w, const char *name, const char *what, const char *why_not)
{
    vt_json_open(w, name, '{');
    vt_json_string(w, "what", what);
    vt_json_bool(w, "used", !why_not);
    vt_json_string(w, "why", why_not);
    vt_json_close(w);
}

static void put_tiers(vt_json *w, const story_input *in)
{
    char why[256];
    bool events = vt_probe_perf_events(why, sizeof why);
    vt_json_open(w, "tiers", '{');
    put_tier(w, "T0", "clocks, and exact bytes and FLOPs", NULL);
    put_tier(w, "T1", "hardware events of this process",
             events ? "they are allowed here, and the recorder does not read them yet" : why);
    put_tier(w, "T2", "a GPU's counters over time",
             story_gpu(in) ? "CUPTI is not read yet" : "the CPU ran the steps");
    put_tier(w, "T3", "a GPU's counters of each kernel",
             story_gpu(in) ? "CUPTI is not read yet" : "the CPU ran the steps");
    vt_json_close(w);
}

static void put_ranks(vt_json *w)
{
    vt_json_open(w, "ranks", '{');
    vt_json_open(w, "items", '[');
    vt_json_close(w);
    vt_json_string(w, "why", "one device ran all steps");
    vt_json_close(w);
}

vt_status story_put_places(vt_json *w, const story_input *in, story_record *r, vt_err *err)
{
    size_t n_steps = (size_t)r->n_steps + 1;
    const step_record **step = vt_arena_alloc(&r->arena, n_steps, sizeof *step);
    bool *picked = vt_arena_alloc(&r->arena, n_steps, sizeof *picked);
    double *v = vt_arena_alloc(&r->arena, (size_t)STORY_MAX_CALLS + STORY_MAX_STEPS, sizeof *v);
    if (!step || !picked || !v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    int32_t left_out, n = pick_steps(r, step, &left_out);
    put_steps(w, r, step, n, left_out, v);
    put_calls(w, in, r, step, n, picked, v);
    put_lanes(w, in, r, step, n, v); /* changes the list of steps */
    put_tiers(w, in);
    put_ranks(w);
    return VT_OK;
}
