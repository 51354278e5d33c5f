/* The gains that the final report tells (report/inside.h): the knobs that were turned and the
 * kernels of a decode step, each with its worth for the whole step.
 *
 *   1. the parts of a step: each call with its time in the step and the least its roof allows
 *   2. the knobs, by what the engine does about them today, as their labs declare it (lab_knob_def)
 *   3. what the templates see: each knob with its kind and its worth, each call with what its roof
 *      leaves, and each kernel with what the calls that it makes leave together
 *
 * A GPU's calls are timed in steps that are taken apart, which last longer than the graph's step.
 * There a call's time in the step is the one that its launch and the efficiency measured of it
 * alone promise ("expected"), or, where none is known, its share of the step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report/inside.h"

/* ---- 1: the parts of a step ---- */

enum { MAX_PARTS = 64 };

typedef struct part {
    const char *call, *row, *bound;
    bool prefill;
    double calls, time_s, least_s; /* in a step; least_s may be NAN */
} part;

typedef struct step {
    part part[MAX_PARTS];
    int n;
    double decode_s, prefill_s; /* of the whole step; 0: not known */
    bool apart;                 /* its calls were timed in steps that last longer */
} step;

/* The cell of this column, which may be right-aligned (">time"); NULL: none. */
static const json_t *cell_of(const json_t *table, const json_t *row, const char *column)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(table, "columns"), i, c)
    {
        const char *name = json_string_value(c);
        if (name && strcmp(name + (*name == '>'), column) == 0)
            return json_array_get(row, i);
    }
    return NULL;
}

static double value_of(const json_t *table, const json_t *row, const char *column)
{
    return report_number(cell_of(table, row, column), "value");
}

static const char *words_of(const json_t *table, const json_t *row, const char *column)
{
    return report_string(cell_of(table, row, column), "text");
}

/* Steps that were taken apart last this much longer at least. */
#define APART 1.2

/* The times of the calls in the real step: see the head of this file. */
static void into_step(step *s, const double *expected, double pass_s)
{
    double sum = 0;
    s->apart = s->decode_s > 0 && pass_s > APART * s->decode_s;
    for (int i = 0; i < s->n && s->apart; i++) {
        part *p = &s->part[i];
        p->time_s = p->prefill         ? p->time_s
                    : expected[i] >= 0 ? expected[i]
                                       : p->time_s * s->decode_s / pass_s;
        sum += p->prefill ? 0 : p->time_s;
    }
    for (int i = 0; i < s->n && sum > s->decode_s; i++)
        if (!s->part[i].prefill)
            s->part[i].time_s *= s->decode_s / sum;
}

/* From the table of kernels and the graded step of mini-sglang 06. */
static void read_step(const json_t *pass, step *s)
{
    double expected[MAX_PARTS], pass_s = 0, took;
    const json_t *table = json_object_get(json_object_get(pass, "items"), "kernels");
    size_t i;
    json_t *row;
    *s = (step){0};
    took = report_number(json_array_get(json_object_get(pass, "predictions"), 0), "measured");
    json_array_foreach(json_object_get(table, "rows"), i, row)
    {
        double time = value_of(table, row, "time"), roof = value_of(table, row, "of roof");
        if (s->n == MAX_PARTS || !(time > 0))
            continue;
        part *p = &s->part[s->n];
        *p = (part){.call = words_of(table, row, "call"),
                    .row = words_of(table, row, "row"),
                    .bound = words_of(table, row, "bound"),
                    .prefill = strcmp(words_of(table, row, "phase"), "decode") != 0,
                    .calls = strtod(words_of(table, row, "calls"), NULL),
                    .time_s = time,
                    .least_s = roof > 0 && roof <= 1 ? roof * time : NAN};
        expected[s->n++] = value_of(table, row, "expected");
        pass_s += p->prefill ? 0 : time;
        s->prefill_s += p->prefill ? time : 0;
    }
    s->decode_s = took > 0 && s->n > 0 ? took : 0;
    into_step(s, expected, pass_s);
}

/* Returns true if "linear.head" is a call of "linear.head" or of "linear". */
static bool is_call_of(const char *call, const char *op)
{
    size_t n = strlen(op);
    return n > 0 && strncmp(call, op, n) == 0 && (call[n] == '\0' || call[n] == '.');
}

/* The share of an op's calls in a step of its phase; NAN: the step does not run it. */
static double share_of(const step *s, const char *op, bool prefill)
{
    double sum = 0, whole = prefill ? s->prefill_s : s->decode_s;
    for (int i = 0; i < s->n; i++)
        if (s->part[i].prefill == prefill && is_call_of(s->part[i].call, op))
            sum += s->part[i].time_s;
    return whole > 0 && sum > 0 ? fmin(sum / whole, 1) : NAN;
}

/* ---- 2: the knobs ---- */

/* The knob as its lab declares it. A result of another version may hold a knob
 * that no lab declares: nothing is said of what turns it on. */
static const lab_knob_def *side_of(const report *r, const json_t *knob)
{
    static const lab_knob_def undeclared = {.mark = "", .kind = LAB_OFFERED};
    const lab_knob_def *side = NULL;
    for (int i = 0; i < r->n && !side; i++)
        if (strcmp(r->lab[i]->number, report_string(knob, "lab")) == 0)
            side = lab_knob_find(r->lab[i], report_string(knob, "name"),
                                 report_string(knob, "where"));
    return side ? side : &undeclared;
}

static const char *effort_of(const lab_knob_def *side)
{
    if (side->kind == LAB_RUNS)
        return "none: a choice";
    if (!*side->mark)
        return "not known: its lab does not declare it";
    if (!side->turn)
        return "large: to be written";
    if (strncmp(side->turn, "--", 2) == 0)
        return "none: an option";
    if (strncmp(side->turn, "VITRINE_", 8) == 0)
        return "none: a variable of the environment";
    return strcmp(side->turn, LAB_BY_CARD) == 0
               ? "small: the code is there, the card has to choose it"
               : side->turn;
}

typedef struct worth {
    double whole;   /* the time of the whole before over after; NAN: not known */
    char of[64];    /* of what: "a decode step" */
    double share;   /* of the whole that the knob changes; NAN: all of it, or not known */
    const char *op; /* that has this share */
} worth;

/* Computes the gain of the whole from `gain` of a knob's part. */
static worth worth_of(const step *s, const lab_knob_def *side, const json_t *knob, double gain)
{
    worth w = {.whole = NAN, .share = NAN};
    const char *of = side->of ? side->of : "";
    bool prefill = strncmp(of, "prefill ", 8) == 0;
    if (strcmp(of, LAB_STEP) == 0 || strcmp(of, LAB_FIRST) == 0 || strcmp(of, LAB_START) == 0) {
        w.whole = gain;
        snprintf(w.of, sizeof w.of, "%s", of);
        return w;
    }
    if (strcmp(of, "attention") == 0) { /* one lab turns both */
        prefill = strstr(report_string(knob, "what"), "q_len=") != NULL;
        w.op = prefill ? "attention_prefill" : "attention_decode";
    } else if (strcmp(of, "what") == 0) {
        w.op = report_string(knob, "what");
        prefill = strcmp(w.op, "attention_prefill") == 0;
    } else
        w.op = of + (prefill ? 8 : 0);
    w.share = share_of(s, w.op, prefill);
    w.whole = 1 / (1 - w.share + w.share / gain);
    snprintf(w.of, sizeof w.of, "%s", prefill ? "a prompt's step" : LAB_STEP);
    return w;
}

/* ---- 3: what the templates see ---- */

/* "1.07x of a decode step, of which attention_decode is 13 %" */
static json_t *worth_text(const worth *w)
{
    vt_buf b = {0};
    if (!isfinite(w->whole))
        return json_null();
    vt_text_printf(&b, "%f ratio of %s", w->whole, w->of);
    if (isfinite(w->share)) {
        vt_buf_puts(&b, ", of which ");
        report_cell(&b, w->op);
        vt_text_printf(&b, " is %f share", w->share);
    }
    return report_text(&b);
}

/* Adds to each knob of the view, beside the knob of its result, what it is to the engine. */
static bool add_sides(const report *r, const step *s, json_t *knobs)
{
    static const char *const kinds[] = {
        [LAB_OFFERED] = "offered", [LAB_RUNS] = "runs", [LAB_LOAD] = "load"};
    size_t i;
    json_t *knob;
    bool whole = true;
    json_array_foreach(knobs, i, knob)
    {
        const lab_knob_def *side = side_of(r, knob);
        double gain = report_number(knob, "ratio");
        bool back = side->kind == LAB_RUNS; /* it would be taken back */
        worth w = worth_of(s, side, knob, back ? 1 / gain : gain);
        json_t *more = json_pack("{s:s s:o s:f s:s s:s s:s?}", "kind", kinds[side->kind], "worth",
                                 worth_text(&w), "whole", isfinite(w.whole) ? w.whole : 0.0,
                                 "effort", effort_of(side), "strength",
                                 side->strength ? side->strength : "", "turn", side->turn);
        whole = more && json_object_update(knob, more) == 0 && whole;
        json_decref(more);
    }
    return whole;
}

/* A call with the gain of the whole that its roof leaves; of one that its launch binds, the gain of
 * sharing its neighbour's launch. */
static json_t *view_part(const step *s, const part *p, double launch_s)
{
    double whole = p->prefill ? s->prefill_s : s->decode_s;
    bool launch = strcmp(p->bound, "launch") == 0;
    double saved = launch ? launch_s * p->calls : p->time_s - p->least_s;
    saved = fmin(saved, p->time_s);
    double gain = isfinite(saved) && saved > 0 && saved < whole ? whole / (whole - saved) : NAN;
    double beyond = p->time_s - p->least_s;
    return json_pack(
        "{s:s s:s# s:s s:s s:b s:o s:o s:o s:o s:f s:o s:o s:f s:o s:b}", "call", p->call, "op",
        p->call, (int)strcspn(p->call, ". "), "row", p->row, "bound", p->bound, "prefill",
        p->prefill, "time", report_figure(p->time_s, VT_SECONDS), "each",
        report_figure(p->calls > 0 ? p->time_s / p->calls : NAN, VT_SECONDS), "share",
        report_figure(whole > 0 ? p->time_s / whole : NAN, VT_SHARE), "of_roof",
        report_figure(p->least_s < p->time_s ? p->least_s / p->time_s : NAN, VT_SHARE), "whole",
        isfinite(gain) ? gain : 0.0, "gain", report_figure(gain, VT_RATIO), "least",
        report_figure(p->least_s, VT_SECONDS), "beyond_s", beyond > 0 ? beyond : 0.0, "beyond",
        report_figure(beyond, VT_SECONDS), "near", p->least_s >= 0.5 * p->time_s);
}

/* Returns true if one change of a kernel would serve both: calls of one op ("linear.o" and
 * "linear.down"), made by one implementation and bound by the same. */
static bool same_kernel(const part *a, const part *b)
{
    size_t op = strcspn(a->call, ".");
    return a->call[op] == '.' && strncmp(a->call, b->call, op + 1) == 0 &&
           a->prefill == b->prefill && strcmp(a->row, b->row) == 0 &&
           strcmp(a->bound, b->bound) == 0;
}

/* Returns part i with the sums of all parts that the same kernel makes. Its name is
 * "linear (down, o)", or that of the call where it is alone. */
static part join_kernel(const step *s, int i, char *name, size_t size)
{
    part sum = s->part[i];
    int op = (int)strcspn(sum.call, ".");
    char calls[160] = "";
    for (int k = i; k < s->n; k++) {
        const part *p = &s->part[k];
        size_t n = strlen(calls);
        if (k > i && !same_kernel(&s->part[i], p))
            continue;
        snprintf(calls + n, sizeof calls - n, "%s%s", n ? ", " : "",
                 p->call[op] ? p->call + op + 1 : "");
        sum.time_s += k > i ? p->time_s : 0;
        sum.least_s += k > i ? p->least_s : 0;
        sum.calls += k > i ? p->calls : 0;
    }
    snprintf(name, size, strchr(calls, ',') ? "%.*s (%s)" : "%.*s.%s", op, sum.call, calls);
    sum.call = calls[0] ? name : sum.call;
    return sum;
}

/* The kernels of a step: its calls, those that one kernel makes together. */
static json_t *view_kernels(const step *s, double launch_s)
{
    json_t *kernels = json_array();
    char name[240];
    for (int i = 0; i < s->n; i++) {
        bool told = false;
        for (int k = 0; k < i; k++)
            told |= same_kernel(&s->part[k], &s->part[i]);
        if (told)
            continue;
        part joined = join_kernel(s, i, name, sizeof name);
        kernels = report_append(kernels, view_part(s, &joined, launch_s));
    }
    return kernels;
}

bool report_view_gains(const report *r, json_t *view)
{
    step *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    read_step(r->pass, s);
    json_t *parts = json_array();
    double launch_s = r->roofs.is_gpu ? r->roofs.kernel_s : r->roofs.meeting_s;
    for (int i = 0; i < s->n; i++)
        parts = report_append(parts, view_part(s, &s->part[i], launch_s));
    json_t *told = json_pack(
        "{s:o s:o s:b s:o s:o}", "decode",
        report_figure(s->decode_s > 0 ? s->decode_s : NAN, VT_SECONDS), "prefill",
        report_figure(s->prefill_s > 0 ? s->prefill_s : NAN, VT_SECONDS), "apart", s->apart,
        "parts", parts, "kernels", view_kernels(s, launch_s));
    bool whole = json_object_set_new(view, "step", told) == 0;
    whole = add_sides(r, s, json_object_get(view, "knobs")) && whole;
    free(s);
    return whole;
}
