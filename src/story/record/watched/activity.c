/* When kernels and copies ran, by CUPTI's records (activity.h).
 *
 *   records of a step   copy | k k | k |  k | k k | copy   k: a kernel, with its call
 *   calls                    [ 0  ][ 1 ][ 2 ][ 3  ]        each from the end of the one before it
 *   stamped calls            [ 0  ][ 1 ][ 2 ][ 3  ]        of other steps, in the same sense
 *
 * So calls sum to the step here as they do in stamped steps, and the two sums can be compared. What
 * kernels took themselves is told apart (kernel_us): neighbours overlap, and there are gaps.
 *
 * The first call counts from its own begin: before it the GPU waits for the host, which CUPTI keeps
 * busy with the graph's launch, 0.3 ms on an H200.
 *
 * A step whose records are not whole is left out of the sums: records that were lost would make its
 * other calls longer.
 *
 * Each rank of several has records of its own, and phases of its own here. Stamped times of an op
 * are of all ranks together, so they do not stand beside one rank's records. */
#include "story/record/watched/activity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/record/columns.h"
#include "story/record/numbers.h"

enum { MAX_OPS = 64, OP_NAMES = 6 };

/* A kernel's name, and what it took in the calls of an op. */
typedef struct recorded_kernel {
    uint64_t name;
    int32_t n;
    double s;
} recorded_kernel;

typedef struct recorded_op {
    const char *kind, *op, *impl;
    int32_t n_calls, n_kernels;
    double s, kernel_s; /* from the predecessor's end to its own; of the kernels alone */
    recorded_kernel kernel[OP_NAMES];
    int32_t n_names;
} recorded_op;

typedef struct recorded_phase {
    const char *name;
    recorded_op *op; /* [n_ops], the longest first */
    int32_t n_ops, n_steps;
    int64_t records, unknown; /* unknown: kernels of no call */
    double tokens;
    double step_s, calls_s; /* from the first record to the last; all calls */
    int32_t n_moved[3];     /* copies and fills, by vt_activity_kind */
    double moved_s[3], moved_bytes[3];
    const vt_activity_event *newest; /* the newest step's; NULL: none */
    int32_t n_newest;
} recorded_phase;

/* A step's records. */
typedef struct recorded_step {
    const vt_activity_event *at;
    int32_t n;
} recorded_step;

static double length_s(const vt_activity_event *e)
{
    return (double)(e->end_ns - e->begin_ns) * 1e-9;
}

static bool is_called(const vt_activity_event *e) { return e->call != VT_ACTIVITY_NO_CALL; }

static recorded_op *op_of(recorded_phase *p, const char *kind, const char *op, const char *impl)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        if (strcmp(p->op[i].kind, kind) == 0 && strcmp(p->op[i].impl, impl) == 0)
            return &p->op[i];
    if (p->n_ops == MAX_OPS)
        return NULL;
    p->op[p->n_ops] = (recorded_op){.kind = kind, .op = op, .impl = impl};
    return &p->op[p->n_ops++];
}

static void add_kernel(recorded_op *o, const vt_activity_event *e)
{
    int32_t i = 0;
    o->n_kernels++;
    o->kernel_s += length_s(e);
    while (i < o->n_names && o->kernel[i].name != e->name)
        i++;
    if (i == OP_NAMES)
        return;
    if (i == o->n_names)
        o->kernel[o->n_names++] = (recorded_kernel){.name = e->name};
    o->kernel[i].n++;
    o->kernel[i].s += length_s(e);
}

/* Adds the step's calls, each of which ends with its last record. Calls follow each other. */
static void add_calls(recorded_phase *p, const recorded_step *s, const story_step *plan)
{
    int64_t end = s->at[0].begin_ns, until = end;
    bool called = false;
    for (int32_t i = 0; i < s->n; i++) {
        const vt_activity_event *e = &s->at[i];
        if (is_called(e) && !called)
            end = until = e->begin_ns;
        called = called || is_called(e);
        bool last = i + 1 == s->n || s->at[i + 1].call != e->call;
        const vt_impl *impl = is_called(e) ? story_step_impl(plan, (int32_t)e->call) : NULL;
        until = e->end_ns > until ? e->end_ns : until;
        if (impl) {
            const vt_call *c = &story_step_program(plan)->call[e->call];
            recorded_op *o = op_of(p, story_call_kind(c), c->op->name, impl->name);
            if (o && e->kind == VT_ACTIVITY_KERNEL)
                add_kernel(o, e);
            if (o && last) {
                o->n_calls++;
                o->s += (double)(until - end) * 1e-9;
                p->calls_s += (double)(until - end) * 1e-9;
            }
        } else if (e->kind == VT_ACTIVITY_KERNEL) {
            p->unknown++;
        }
        if (e->kind != VT_ACTIVITY_KERNEL) {
            p->n_moved[e->kind]++;
            p->moved_s[e->kind] += length_s(e);
            p->moved_bytes[e->kind] += (double)e->bytes;
        }
        if (last)
            end = until;
    }
    p->step_s += (double)(until - s->at[0].begin_ns) * 1e-9;
    p->records += s->n;
}

/* True if every active call of the step that has kernels elsewhere has some here: there is a record
 * of the program's last call, and calls come in their order. */
static bool is_whole(const recorded_step *s, const story_step *plan)
{
    int32_t last = -1, most = -1;
    const vt_program *p = story_step_program(plan);
    for (int32_t i = 0; i < p->n_calls; i++)
        if (story_step_impl(plan, i))
            most = i;
    for (int32_t i = 0; i < s->n; i++) {
        if (!is_called(&s->at[i]))
            continue;
        if ((int32_t)s->at[i].call < last || (int32_t)s->at[i].call >= p->n_calls)
            return false;
        last = (int32_t)s->at[i].call;
    }
    return last >= 0 && last == most;
}

/* Returns how many steps are left out. */
static int32_t sum_up(const story_source *from, const story_record *r, story_step *plan,
                      recorded_phase phases[STORY_PHASES])
{
    int32_t broken = 0;
    for (uint64_t i = 0, n; i < from->n_activity; i += n) {
        recorded_step step = {.at = &from->activity[i]};
        for (n = 1; i + n < from->n_activity && step.at[n].step == step.at->step;)
            n++;
        step.n = (int32_t)n;
        const step_record *s = story_find_step(r, step.at->step);
        if (!s || !story_bind_step(r, s, plan))
            continue;
        recorded_phase *p = &phases[s->n_seqs > s->n_decode ? 0 : 1];
        if (!is_whole(&step, plan)) {
            broken++;
            continue;
        }
        p->n_steps++;
        p->tokens += s->n_tokens;
        p->newest = step.at;
        p->n_newest = step.n;
        add_calls(p, &step, plan);
    }
    return broken;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const recorded_op *)a)->s, y = ((const recorded_op *)b)->s;
    return (x < y) - (x > y);
}

/* ---- writing ---- */

static bool has_ranks(const phase *p) { return p->n_lanes > 1; }

/* Seconds of a step that stamps tell of an op; NAN: none do, or they are of several ranks. */
static double stamped_s(const phase *p, const recorded_op *o)
{
    if (has_ranks(p))
        return NAN;
    for (int32_t i = 0; i < p->n_ops && phase_is_stamped(p) && p->n_timed > 0; i++)
        if (strcmp(p->op[i].kind, o->kind) == 0 && strcmp(p->op[i].impl, o->impl) == 0)
            return p->op[i].s / p->n_timed;
    return NAN;
}

/* True if a kernel of the story's own has this name; others are a library's. */
static bool is_ours(const story_source *from, const char *name)
{
    for (int32_t k = 0; k < from->is.n_kernels; k++) {
        const char *ours = from->kernel[k].name;
        size_t n = strcspn(ours, "<");
        if (strncmp(ours, name, n) == 0 && (name[n] == 0 || name[n] == '_'))
            return true;
    }
    return false;
}

static void put_kernels(vt_json *w, const story_source *from, const recorded_op *o, double n_steps)
{
    const vt_activity_facts *facts = from->is.activity_facts;
    vt_json_open(w, "kernels", '[');
    for (int32_t i = 0; i < o->n_names; i++) {
        const recorded_kernel *k = &o->kernel[i];
        const char *name = k->name < (uint64_t)facts->n_names ? facts->name[k->name] : "";
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "name", name);
        vt_json_bool(w, "library", !is_ours(from, name));
        vt_json_real(w, "launches", k->n / n_steps);
        put_us(w, "each_us", k->s / k->n, measured);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_op(vt_json *w, const story_source *from, const phase *p, const recorded_op *o,
                   double n_steps)
{
    double stamped = stamped_s(p, o), s = o->s / n_steps;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "kind", o->kind);
    vt_json_string(w, "op", o->op);
    vt_json_string(w, "impl", o->impl);
    vt_json_real(w, "calls", o->n_calls / n_steps);
    put_us(w, "time_us", s, measured);
    put_us(w, "kernel_us", o->kernel_s / n_steps, measured);
    put_us(w, "stamped_us", stamped, measured);
    vt_json_tagged(w, "of_stamped", s / stamped, 4, derived);
    put_kernels(w, from, o, n_steps);
    vt_json_close(w);
}

static void put_moved(vt_json *w, const char *key, const recorded_phase *p, vt_activity_kind kind)
{
    vt_json_open(w, key, '{');
    vt_json_real(w, "count", p->n_moved[kind] / (double)p->n_steps);
    vt_json_tagged(w, "bytes", p->moved_bytes[kind] / p->n_steps, 0, measured);
    put_us(w, "time_us", p->moved_s[kind] / p->n_steps, measured);
    vt_json_close(w);
}

/* The newest step, record by record. `v`: room for n_newest values. */
static void put_newest(vt_json *w, const recorded_phase *p, double *v)
{
    static const story_column column[] = {
        {"label", 0}, {"begin_us", 3}, {"end_us", 3}, {"in_graph", 0}, {"kind", 0}};
    enum { COLUMNS = sizeof column / sizeof *column };
    const vt_activity_event *e = p->newest;
    vt_json_open(w, "newest", '{');
    vt_json_int(w, "step", (int64_t)e->step);
    vt_json_string(w, "tag", measured);
    vt_json_open(w, "columns", '{');
    for (int c = 0; c < COLUMNS; c++) {
        for (int32_t i = 0; i < p->n_newest; i++)
            v[i] = c == 0   ? is_called(&e[i]) ? (double)e[i].call : NAN
                   : c == 1 ? (double)(e[i].begin_ns - e->begin_ns) * 1e-3
                   : c == 2 ? (double)(e[i].end_ns - e->begin_ns) * 1e-3
                   : c == 3 ? e[i].in_graph
                            : e[i].kind;
        story_put_column(w, column[c].key, v, p->n_newest, column[c].digits);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* The sum over ops that both know, so that a call without stamps is in neither. The steps must be
 * of one size. */
static void put_agreement(vt_json *w, const recorded_phase *p, const phase *of)
{
    double ours = 0, theirs = 0;
    const phase_lane *g = phase_stream(of);
    double tokens = g && g->n_steps ? g->tokens / g->n_steps : NAN;
    bool alike = fabs(p->tokens / p->n_steps / tokens - 1) < 0.02;
    for (int32_t i = 0; i < p->n_ops; i++) {
        double stamped = stamped_s(of, &p->op[i]);
        if (!isfinite(stamped))
            continue;
        ours += p->op[i].s / p->n_steps;
        theirs += stamped;
    }
    put_us(w, "stamped_us", theirs > 0 ? theirs : NAN, measured);
    vt_json_tagged(w, "of_stamped", theirs > 0 && alike ? ours / theirs : NAN, 4, derived);
}

static void put_phase(vt_json *w, const story_source *from, const recorded_phase *p,
                      const phase *of, double *v)
{
    double n = p->n_steps;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", p->name);
    vt_json_string(w, "rank", has_ranks(of) ? from->is.name : NULL);
    vt_json_int(w, "recorded_steps", p->n_steps);
    vt_json_tagged(w, "records", (double)p->records / n, 1, measured);
    vt_json_tagged(w, "unknown", (double)p->unknown / n, 1, measured);
    put_us(w, "step_us", p->step_s / n, measured);
    put_us(w, "calls_us", p->calls_s / n, measured);
    put_us(w, "unrecorded_step_us", phase_step_s(of), measured);
    put_agreement(w, p, of);
    put_moved(w, "copies", p, VT_ACTIVITY_COPY);
    put_moved(w, "fills", p, VT_ACTIVITY_FILL);
    vt_json_open(w, "ops", '[');
    for (int32_t k = 0; k < p->n_ops; k++)
        put_op(w, from, of, &p->op[k], n);
    vt_json_close(w);
    put_newest(w, p, v);
    vt_json_close(w);
}

/* The next source from `from` on whose kernels were to be recorded; NULL: there is no other. */
static const story_source *next_recorded(const story_input *in, const story_source *from)
{
    for (const story_source *s = from; s < in->source + in->n_sources; s++)
        if (s->is.kind == VT_SOURCE_STREAM && s->is.activity)
            return s;
    return NULL;
}

const char *story_no_activity(const story_input *in)
{
    const story_source *g = story_find_source(in, VT_SOURCE_STREAM), *first;
    if (!g)
        return "the CPU ran the steps";
    first = next_recorded(in, in->source);
    for (const story_source *s = first; s; s = next_recorded(in, s + 1))
        if (s->n_activity > 0)
            return NULL;
    if (first && first->is.no_activity)
        return first->is.no_activity;
    return first ? "no step was left to record" : "--story-activity reads them";
}

/* The phases of a source's records. `v`: room for as many values as it has. */
static vt_status put_source(vt_json *w, const story_source *from, story_record *r, story_step *plan,
                            const phase phases[STORY_PHASES], int32_t *broken, vt_err *err)
{
    static const char *const name[STORY_PHASES] = {"prefill", "decode"};
    recorded_phase recorded[STORY_PHASES] = {{0}};
    double *v = vt_arena_alloc(&r->arena, from->n_activity + 1, sizeof *v);
    for (int i = 0; i < STORY_PHASES; i++) {
        recorded[i].name = name[i];
        recorded[i].op = vt_arena_alloc(&r->arena, MAX_OPS, sizeof *recorded[i].op);
        if (!v || !recorded[i].op)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    }
    *broken += sum_up(from, r, plan, recorded);
    for (int i = 0; i < STORY_PHASES; i++) {
        recorded_phase *p = &recorded[i];
        qsort(p->op, (size_t)p->n_ops, sizeof *p->op, by_time);
        if (p->n_steps > 0)
            put_phase(w, from, p, &phases[i], v);
    }
    return VT_OK;
}

vt_status story_put_activity(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                             const phase phases[STORY_PHASES], vt_err *err)
{
    const story_source *first = next_recorded(in, in->source);
    int32_t broken = 0;
    int64_t lost = 0;
    if (!first) {
        vt_json_null(w, "activity");
        return VT_OK;
    }
    const vt_activity_facts *facts = first->is.activity_facts;
    vt_json_open(w, "activity", '{');
    vt_json_string(w, "tier", "T1");
    vt_json_string(w, "why", story_no_activity(in));
    put_ms(w, "begin_ms", (double)facts->on_ns * 1e-9 / facts->steps, measured);
    put_ms(w, "read_ms", (double)facts->off_ns * 1e-9 / facts->steps, measured);
    vt_json_open(w, "phases", '[');
    for (const story_source *s = first; s; s = next_recorded(in, s + 1)) {
        lost = s->is.activity_facts->lost > lost ? s->is.activity_facts->lost : lost;
        TRY(put_source(w, s, r, plan, phases, &broken, err));
    }
    vt_json_close(w);
    vt_json_int(w, "lost", lost);
    vt_json_int(w, "broken_steps", broken);
    vt_json_close(w);
    return VT_OK;
}
