/* A trace as stacks: step, kind of op, layer. Folded lines, one for each stack with its sum, are
 * what flamegraph.pl, inferno and speedscope read; speedscope's own form keeps the order of time.
 *
 *   decode step;linear.qkv;L07 81250           nanoseconds
 *   decode step;between calls 4120             of steps whose calls were timed
 *   decode step;calls not timed 9914300        of all others */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"
#include "story/forms/trace.h"

/* ---- folded ---- */

typedef struct stack {
    const char *text;
    double us;
} stack;

typedef struct stacks {
    vt_arena arena; /* of the texts */
    stack *row;     /* room for two for each span */
    size_t n;
    bool failed;
} stacks;

/* "L07.linear.qkv" becomes "linear.qkv;L07", other labels stay. A ';' in a name becomes ','. */
static void put_label(vt_buf *b, const char *label)
{
    size_t layer = 0;
    if (label[0] == 'L')
        for (layer = 1; label[layer] >= '0' && label[layer] <= '9';)
            layer++;
    bool split = layer > 1 && label[layer] == '.' && label[layer + 1];
    for (const char *s = split ? label + layer + 1 : label; *s; s++)
        vt_buf_putc(b, *s == ';' ? ',' : *s);
    if (split) {
        vt_buf_putc(b, ';');
        vt_buf_add(b, label, layer);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const stack *)a)->text, ((const stack *)b)->text);
}

/* Sums equal stacks and prints them in the order of their names. */
static void put_stacks(stack *s, size_t n, vt_buf *out)
{
    if (n)
        qsort(s, n, sizeof *s, by_text);
    for (size_t i = 0; i < n;) {
        double us = 0;
        size_t first = i;
        for (; i < n && strcmp(s[i].text, s[first].text) == 0; i++)
            us += s[i].us;
        if (us * 1e3 >= 0.5)
            vt_buf_printf(out, "%s %.0f\n", s[first].text, us * 1e3);
    }
}

static void add_stack(stacks *s, const char *step, const char *label, double us)
{
    vt_buf b = {0};
    vt_buf_printf(&b, "%s;", step);
    put_label(&b, label);
    const char *text = b.failed ? NULL : vt_arena_strdup(&s->arena, b.data, b.len);
    vt_buf_release(&b);
    s->failed |= !text;
    if (text && us > 0)
        s->row[s->n++] = (stack){text, us};
}

/* The first call of a step, or the first one behind it; calls are in the order of the steps. */
static size_t calls_of(const trace *t, size_t from, int64_t step)
{
    while (from < t->n_spans && t->span[from].track == TRACE_CALLS && t->span[from].step < step)
        from++;
    return from;
}

static size_t first_of(const trace *t, trace_track track)
{
    size_t i = 0;
    while (i < t->n_spans && t->span[i].track != track)
        i++;
    return i;
}

void trace_to_folded(const trace *t, vt_buf *out)
{
    stacks s = {.row = calloc(2 * t->n_spans + 1, sizeof *s.row)};
    size_t call = first_of(t, TRACE_CALLS);
    s.failed = !s.row;
    vt_arena_init(&s.arena, 0);
    for (size_t i = first_of(t, TRACE_STEPS);
         s.row && i < t->n_spans && t->span[i].track == TRACE_STEPS; i++) {
        const trace_span *step = &t->span[i];
        double left = step->us;
        call = calls_of(t, call, step->step);
        bool timed = call < t->n_spans && t->span[call].step == step->step;
        for (; call < t->n_spans && t->span[call].step == step->step; call++) {
            add_stack(&s, step->name, t->span[call].name, t->span[call].us);
            left -= t->span[call].us;
        }
        add_stack(&s, step->name, timed ? "between calls" : TRACE_UNTIMED, left);
    }
    if (s.row)
        put_stacks(s.row, s.n, out);
    out->failed |= s.failed;
    vt_arena_release(&s.arena);
    free(s.row);
}

/* ---- speedscope ---- */

typedef struct scope {
    vt_json w;
    const char **frame; /* the names, each once */
    size_t n_frames;
    double at_us; /* of the last event: time never runs back */
} scope;

static size_t frame_of(scope *s, const char *name)
{
    for (size_t i = 0; i < s->n_frames; i++)
        if (strcmp(s->frame[i], name) == 0)
            return i;
    s->frame[s->n_frames] = name;
    return s->n_frames++;
}

static void put_event(scope *s, const char *type, const char *name, double at_us)
{
    s->at_us = fmax(s->at_us, at_us);
    vt_json_open(&s->w, NULL, '{');
    vt_json_string(&s->w, "type", type);
    vt_json_int(&s->w, "frame", (int64_t)frame_of(s, name));
    vt_json_fixed(&s->w, "at", s->at_us, 3);
    vt_json_close(&s->w);
}

/* Steps with their calls inside; a call that reaches over its step's end is cut there, as the form
 * wants spans to lie within each other. */
static void put_steps(scope *s, const trace *t)
{
    size_t call = first_of(t, TRACE_CALLS);
    for (size_t i = first_of(t, TRACE_STEPS); i < t->n_spans && t->span[i].track == TRACE_STEPS;
         i++) {
        const trace_span *step = &t->span[i];
        double end = step->begin_us + fmax(0, step->us);
        put_event(s, "O", step->name, step->begin_us);
        for (call = calls_of(t, call, step->step);
             call < t->n_spans && t->span[call].step == step->step; call++) {
            const trace_span *c = &t->span[call];
            put_event(s, "O", c->name, fmin(c->begin_us, end));
            put_event(s, "C", c->name, fmin(c->begin_us + fmax(0, c->us), end));
        }
        put_event(s, "C", step->name, end);
    }
}

void trace_to_speedscope(const trace *t, const char *name, vt_buf *out)
{
    scope s = {.frame = calloc(t->n_spans + 1, sizeof *s.frame)};
    size_t first = first_of(t, TRACE_STEPS);
    double start = first < t->n_spans ? t->span[first].begin_us : 0;
    out->failed |= !s.frame;
    if (!s.frame)
        return;
    s.at_us = start;
    vt_json_begin(&s.w, out, -1);
    vt_json_open(&s.w, NULL, '{');
    vt_json_string(&s.w, "$schema", "https://www.speedscope.app/file-format-schema.json");
    vt_json_string(&s.w, "name", name);
    vt_json_string(&s.w, "exporter", "vitrine");
    vt_json_open(&s.w, "profiles", '[');
    vt_json_open(&s.w, NULL, '{');
    vt_json_string(&s.w, "type", "evented");
    vt_json_string(&s.w, "name", "steps and their calls");
    vt_json_string(&s.w, "unit", "microseconds");
    vt_json_fixed(&s.w, "startValue", start, 3);
    vt_json_open(&s.w, "events", '[');
    put_steps(&s, t);
    vt_json_close(&s.w);
    vt_json_fixed(&s.w, "endValue", s.at_us, 3);
    vt_json_close(&s.w);
    vt_json_close(&s.w);
    vt_json_open(&s.w, "shared", '{');
    vt_json_open(&s.w, "frames", '[');
    for (size_t i = 0; i < s.n_frames; i++) {
        vt_json_open(&s.w, NULL, '{');
        vt_json_string(&s.w, "name", s.frame[i]);
        vt_json_close(&s.w);
    }
    vt_json_close(&s.w);
    vt_json_close(&s.w);
    vt_json_close(&s.w);
    out->failed |= !vt_json_end(&s.w);
    vt_buf_putc(out, '\n');
    free(s.frame);
}
