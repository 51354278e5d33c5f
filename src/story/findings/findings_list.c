/* The list of findings (findings_inside.h): kept until all rules have spoken, then ordered
 * by what each could bring, with the symptoms of one cause in one entry. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "story/findings/findings_inside.h"
#include "story/record/numbers.h"

static finding *last(findings *f) { return &f->entry[f->n - 1]; }

void finding_begin(findings *f, char severity, const char *rule, const char *threshold,
                   const char *fmt, ...)
{
    va_list args;
    if (f->n == FINDINGS_MAX) { /* the last one gives up its place */
        vt_buf_release(&last(f)->evidence);
        f->n--;
    }
    finding *e = &f->entry[f->n];
    *e = (finding){
        .severity = severity, .rule = rule, .threshold = threshold, .gain_s = NAN, .order = f->n++};
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    vt_json_begin(&f->evidence, &e->evidence, -1);
    f->w = &f->evidence;
    vt_json_open(f->w, NULL, '{');
}

void finding_gain(findings *f, double s) { last(f)->gain_s = s > 0 ? s : NAN; }

void finding_cause(findings *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(last(f)->cause, sizeof last(f)->cause, fmt, args);
    va_end(args);
}

void finding_links(findings *f, uint64_t step, const char *call)
{
    last(f)->step = step;
    last(f)->call = call;
}

void finding_end(findings *f)
{
    vt_json_close(f->w);
    (void)vt_json_end(f->w); /* a failure stays in the buffer's flag */
}

/* The machine first, because it spoils all other figures; then by gain, warnings before notes. */
static int most_first(const void *a, const void *b)
{
    const finding *x = a, *y = b;
    bool mx = strncmp(x->rule, "machine.", 8) == 0, my = strncmp(y->rule, "machine.", 8) == 0;
    double gx = isnan(x->gain_s) ? -1 : x->gain_s, gy = isnan(y->gain_s) ? -1 : y->gain_s;
    if (mx != my)
        return mx ? -1 : 1;
    if (x->severity != y->severity)
        return x->severity == 'W' ? -1 : 1;
    if (gx != gy)
        return gx < gy ? 1 : -1;
    return x->order - y->order;
}

static bool same_cause(const finding *a, const finding *b)
{
    return *a->cause && strcmp(a->cause, b->cause) == 0;
}

/* Returns true if an entry before number i has its cause. */
static bool told(const findings *f, int i)
{
    for (int k = 0; k < i; k++)
        if (same_cause(&f->entry[k], &f->entry[i]))
            return true;
    return false;
}

static void put_links(vt_json *w, const finding *e)
{
    vt_json_open(w, "links", '[');
    if (e->step || e->call) {
        vt_json_open(w, NULL, '{');
        if (e->step)
            vt_json_int(w, "step", (int64_t)e->step);
        if (e->call)
            vt_json_string(w, "call", e->call);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_symptoms(vt_json *w, const findings *f, int i)
{
    vt_json_open(w, "symptoms", '[');
    for (int k = i + 1; k < f->n; k++) {
        if (!same_cause(&f->entry[i], &f->entry[k]))
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "rule", f->entry[k].rule);
        vt_json_string(w, "text", f->entry[k].text);
        vt_json_string(w, "threshold", f->entry[k].threshold);
        vt_json_raw(w, "evidence", f->entry[k].evidence.data, f->entry[k].evidence.len);
        put_links(w, &f->entry[k]);
        vt_json_close(w);
    }
    vt_json_close(w);
}

void findings_write(findings *f, vt_json *w)
{
    int n_w = 0, n_n = 0;
    qsort(f->entry, (size_t)f->n, sizeof f->entry[0], most_first);
    vt_json_open(w, "findings", '[');
    for (int i = 0; i < f->n; i++) {
        const finding *e = &f->entry[i];
        w->out->failed |= e->evidence.failed;
        if (w->out->failed || told(f, i))
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_printf(w, "id", "%c%d", e->severity, e->severity == 'W' ? ++n_w : ++n_n);
        vt_json_string(w, "rule", e->rule);
        vt_json_string(w, "text", e->text);
        vt_json_string(w, "threshold", e->threshold);
        vt_json_tagged(w, "gain_ms_per_token", f->tokens > 0 ? e->gain_s / f->tokens * 1e3 : NAN, 4,
                       derived);
        vt_json_raw(w, "evidence", e->evidence.data, e->evidence.len);
        put_links(w, e);
        put_symptoms(w, f, i);
        vt_json_close(w);
    }
    vt_json_close(w);
    for (int i = 0; i < f->n; i++)
        vt_buf_release(&f->entry[i].evidence);
    f->n = 0;
}
