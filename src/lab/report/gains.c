/* The gains that the final report tells (report/inside.h): the knobs that were turned and the
 * kernels of a decode step, each with its worth for the whole step.
 *
 *   1. the parts of a step: each call with its time in the step and the least its roof allows
 *   2. the knobs, by what the engine does about them today
 *   3. what the templates see: each knob with its kind and its worth, each call with what its roof
 *      leaves
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

typedef enum knob_kind {
    OFFERED, /* not on: an option, or a row that no card chooses; before is what the engine runs */
    RUNS,    /* on: after is what the engine runs, before is without it */
    LOAD     /* of the load or of the measurement: nothing of the engine to change */
} knob_kind;

typedef struct knob_side {
    const char *lab;  /* "sglang 03", or a track; NULL: any */
    const char *mark; /* in the knob's name or place */
    knob_kind kind;
    /* The part of the whole that its gain is of: an op of the decode step, or "prefill OP", "what"
     * (the op that the knob names), or one of "a decode step", "a first token", "a start". NULL:
     * none of them. */
    const char *of;
    const char *strength; /* of one that runs: what the design does */
} knob_side;

#define STEP "a decode step"
#define FIRST "a first token"
#define START "a start"

/* The first row that fits is the knob's. */
static const knob_side sides[] = {
    {"sglang 01", "--max-running", RUNS, STEP,
     "sequences decode together, so that a step reads the weights once for all of them"},
    {"sglang 05", "--max-running", LOAD, NULL, NULL},
    {NULL, "prefix-cache", RUNS, FIRST, "a prefix that prompts share is computed once"},
    {"sglang 03", "fa3-tiles", OFFERED, "attention_decode", NULL},
    {"sglang 03", "prefill, ", RUNS, "prefill attention_prefill",
     "the attention of a prompt has a kernel of its own for this machine's instructions"},
    {"sglang 03", "decode, ", RUNS, "attention_decode",
     "the attention of a decode has a kernel of its own for this machine's instructions"},
    {NULL, "VITRINE_CUDA_LEVEL", RUNS, FIRST,
     "kernels are compiled for this GPU, not for the oldest that would do"},
    {NULL, "VITRINE_CUBLASLT", RUNS, FIRST,
     "matrix products go to cuBLASLt for the sizes at which it was measured to be faster, and to "
     "our own kernels for the others"},
    {"sglang 03", "prompt", RUNS, FIRST, "prompts use the widest vectors that the CPU has"},
    {"sglang 03", "VITRINE_ISA", RUNS, STEP, "decodes use the widest vectors that the CPU has"},
    {"sglang 03", "--deterministic", OFFERED, STEP, NULL},
    {NULL, "--token-budget", OFFERED, NULL, NULL},
    {"sglang 00", "", LOAD, NULL, NULL},
    {"sglang 06", "tokens a step", LOAD, NULL, NULL},
    {"mini-sglang 00", "row ", OFFERED, "rmsnorm", NULL},
    {"mini-sglang 01", "--linear-backend", OFFERED, "linear.head", NULL},
    {"mini-sglang 02", "wider vectors, not", RUNS, "embed",
     "rows of the embedding table are copied by the widest vectors"},
    {"mini-sglang 02", "--threads", RUNS, "embed", "a gather is cut over all threads"},
    {NULL, "VITRINE_CUDA_PDL", RUNS, STEP,
     "a kernel starts while the one before it ends (programmatic dependent launch)"},
    {"mini-sglang 02", "", OFFERED, "embed", NULL},
    {"mini-sglang 03", "vectors, not", RUNS, "rope_store",
     "K and V are stored by the widest vectors"},
    {"mini-sglang 03", "beside the norm", RUNS, "rope_store",
     "the norms of q and k, the rotation and the store share one call"},
    {"mini-sglang 03", "", OFFERED, "rope_store", NULL},
    {"mini-sglang 04", "", OFFERED, "attention", NULL},
    {"mini-sglang 05", "--page-size", LOAD, NULL, NULL},
    {"mini-sglang 06", "--no-graphs", RUNS, STEP,
     "a whole step is one CUDA graph, which the host launches once"},
    {"mini-sglang 06", "", OFFERED, STEP, NULL},
    {"mini-sglang radix", "VITRINE_ISA", RUNS, NULL,
     "prefixes are compared by vectors, many ids at once"},
    {NULL, "VITRINE_CACHE", RUNS, START, "compiled kernels are kept for the next start"},
    {"flashinfer 00", "--max-running", OFFERED, START, NULL},
    {"flashinfer", "VITRINE_ISA", OFFERED, "what", NULL},
    {"flashinfer 01", "", OFFERED, "attention_decode", NULL},
    {"flashinfer 02", "", OFFERED, "prefill attention_prefill", NULL},
    {"flashinfer 03", "--page-size", LOAD, NULL, NULL},
    {"flashinfer 03", "shared pages", RUNS, NULL,
     "pages that sequences share are read once for all of them"},
    {"flashinfer 03", "", OFFERED, "attention_decode", NULL},
    {"flashinfer 04", "fused add", RUNS, NULL, "the addition is fused with the norm behind it"},
    {"flashinfer 05", "interleaved", LOAD, NULL, NULL},
    {"flashinfer 05", "rope fused", RUNS, "rope_store", "rope is fused with the store of K and V"},
    {"flashinfer 06", "compiling threads", RUNS, START, "kernels are compiled by many threads"},
    {"experiments", "of the clients", LOAD, NULL, NULL},
    {"experiments", "--no-overlap", RUNS, NULL,
     "the next step is planned while the device computes this one"},
    {"experiments", "--kv-memory", OFFERED, START, NULL},
    {"experiments", "--tp", OFFERED, NULL, NULL},
    {NULL, "", OFFERED, NULL, NULL}};

static const knob_side *side_of(const char *track, const json_t *knob)
{
    char where[64];
    const knob_side *s = sides;
    int n = snprintf(where, sizeof where, "%s %.20s", track, report_string(knob, "lab"));
    for (;; s++) {
        size_t k = s->lab ? strlen(s->lab) : 0;
        bool of_lab = !s->lab ||
                      (strncmp(where, s->lab, k) == 0 && (k == (size_t)n || where[k] == ' '));
        if (of_lab && (strstr(report_string(knob, "name"), s->mark) ||
                       strstr(report_string(knob, "where"), s->mark)))
            return s;
    }
}

static const char *effort_of(const json_t *knob)
{
    const char *where = report_string(knob, "where");
    if (strncmp(where, "--", 2) == 0)
        return "none: an option";
    if (strncmp(where, "VITRINE_", 8) == 0)
        return "none: a variable of the environment";
    if (strncmp(where, "variant", 7) == 0 || strncmp(where, "row ", 4) == 0)
        return "small: the code is there, the card has to choose it";
    if (strstr(where, "file"))
        return "another file of the model";
    return "large: to be written";
}

typedef struct worth {
    double whole;   /* the time of the whole before over after; NAN: not known */
    char of[64];    /* of what: "a decode step" */
    double share;   /* of the whole that the knob changes; NAN: all of it, or not known */
    const char *op; /* that has this share */
} worth;

/* Computes the gain of the whole from `gain` of a knob's part. */
static worth worth_of(const step *s, const knob_side *side, const json_t *knob, double gain)
{
    worth w = {.whole = NAN, .share = NAN};
    const char *of = side->of ? side->of : "";
    bool prefill = strncmp(of, "prefill ", 8) == 0;
    if (strcmp(of, STEP) == 0 || strcmp(of, FIRST) == 0 || strcmp(of, START) == 0) {
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
    snprintf(w.of, sizeof w.of, "%s", prefill ? "a prompt's step" : STEP);
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
    static const char *const kinds[] = {"offered", "runs", "load"};
    size_t i;
    json_t *knob;
    bool whole = true;
    json_array_foreach(knobs, i, knob)
    {
        const knob_side *side = side_of(lab_track_name[r->track], knob);
        double gain = report_number(knob, "ratio");
        bool back = side->kind == RUNS; /* it would be taken back */
        worth w = worth_of(s, side, knob, back ? 1 / gain : gain);
        json_t *more = json_pack("{s:s s:o s:f s:s s:s}", "kind", kinds[side->kind], "worth",
                                 worth_text(&w), "whole", isfinite(w.whole) ? w.whole : 0.0,
                                 "effort", back ? "none: a choice" : effort_of(knob), "strength",
                                 side->strength ? side->strength : "");
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
        "{s:s s:s s:s s:b s:o s:o s:o s:o s:f s:o s:o s:f s:o s:b}", "call", p->call, "row", p->row,
        "bound", p->bound, "prefill", p->prefill, "time", report_figure(p->time_s, VT_SECONDS),
        "each", report_figure(p->calls > 0 ? p->time_s / p->calls : NAN, VT_SECONDS), "share",
        report_figure(whole > 0 ? p->time_s / whole : NAN, VT_SHARE), "of_roof",
        report_figure(p->least_s < p->time_s ? p->least_s / p->time_s : NAN, VT_SHARE), "whole",
        isfinite(gain) ? gain : 0.0, "gain", report_figure(gain, VT_RATIO), "least",
        report_figure(p->least_s, VT_SECONDS), "beyond_s", beyond > 0 ? beyond : 0.0, "beyond",
        report_figure(beyond, VT_SECONDS), "near", p->least_s >= 0.5 * p->time_s);
}

bool report_view_gains(const report *r, json_t *view)
{
    step *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    read_step(r->pass, s);
    json_t *parts = json_array();
    for (int i = 0; i < s->n; i++) {
        parts = report_append(
            parts,
            view_part(s, &s->part[i], r->roofs.is_gpu ? r->roofs.kernel_s : r->roofs.meeting_s));
    }
    json_t *told = json_pack("{s:o s:o s:b s:o}", "decode",
                             report_figure(s->decode_s > 0 ? s->decode_s : NAN, VT_SECONDS),
                             "prefill",
                             report_figure(s->prefill_s > 0 ? s->prefill_s : NAN, VT_SECONDS),
                             "apart", s->apart, "parts", parts);
    bool whole = json_object_set_new(view, "step", told) == 0;
    whole = add_sides(r, s, json_object_get(view, "knobs")) && whole;
    free(s);
    return whole;
}
