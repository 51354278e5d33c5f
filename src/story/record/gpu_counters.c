/* A GPU's hardware counters (gpu_counters.h).
 *
 * Counts and times never meet here: every value is of the counted steps alone, and so are the
 * compulsory bytes that the counted ones stand beside. A share is the mean over calls, weighted by
 * the time that CUPTI saw each call take; a sum is divided by the number of counted steps. */
#include "story/record/gpu_counters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cupti/vitals.h"
#include "story/record/numbers.h"
#include "story/record/phases.h"

enum { MAX_OPS = 64 };

bool story_is_counted(const story_input *in)
{
    for (int32_t i = 0; i < in->n_sources; i++)
        if (in->source[i].n_vitals > 0)
            return true;
    return false;
}

static counted_op *op_of(counted_phase *p, const char *kind, const char *op, const char *impl)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        if (strcmp(p->op[i].kind, kind) == 0 && strcmp(p->op[i].impl, impl) == 0)
            return &p->op[i];
    if (p->n_ops == MAX_OPS)
        return NULL;
    p->op[p->n_ops] = (counted_op){.kind = kind, .op = op, .impl = impl};
    return &p->op[p->n_ops++];
}

static void add_call(counted_op *o, const vt_vital_event *e, double bytes)
{
    bool whole = bytes >= 0 && isfinite(e->value[VT_VITAL_DRAM_READ]) &&
                 isfinite(e->value[VT_VITAL_DRAM_WRITTEN]);
    double time = isfinite(e->value[VT_VITAL_TIME]) ? e->value[VT_VITAL_TIME] : 1;
    o->n_calls++;
    o->n_whole += whole;
    o->bytes += whole ? bytes : 0;
    for (int i = 0; i < VT_VITALS; i++) {
        double v = e->value[i];
        if (!isfinite(v))
            continue;
        o->sum[i] += vt_vitals[i].percent ? v * time : v;
        o->time[i] += time;
        o->n[i]++;
    }
}

/* Adds a source's counts to the phases; a step is bound once for all its calls, which follow each
 * other. */
static void sum_up(const story_input *in, const story_source *from, const story_record *r,
                   story_step *plan, counted_phase phases[STORY_PHASES])
{
    const step_record *bound = NULL;
    for (uint64_t i = 0; i < from->n_vitals; i++) {
        const vt_vital_event *e = &from->vital[i];
        const step_record *s = story_find_step(r, e->step);
        if (!s || (int32_t)e->call >= in->program->n_calls ||
            (s != bound && !story_bind_step(r, s, plan)))
            continue;
        bound = s;
        counted_phase *p = &phases[s->n_seqs > s->n_decode ? 0 : 1];
        p->n_steps += p->n_steps == 0 || p->last != s->id;
        p->last = s->id;
        const vt_call *c = &story_step_program(plan)->call[e->call];
        const vt_impl *impl = story_step_impl(plan, (int32_t)e->call);
        counted_op *o = impl ? op_of(p, story_call_kind(c), c->op->name, impl->name) : NULL;
        vt_cost cost, extra;
        bool known = story_step_cost(plan, (int32_t)e->call, &cost, &extra);
        if (o)
            add_call(o, e, known ? (double)vt_cost_bytes(&cost) : -1);
    }
}

/* The longest first. */
static int by_time(const void *a, const void *b)
{
    double x = ((const counted_op *)a)->sum[VT_VITAL_TIME],
           y = ((const counted_op *)b)->sum[VT_VITAL_TIME];
    return (x < y) - (x > y);
}

static void put_op(vt_json *w, const counted_op *o, double n_steps)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "kind", o->kind);
    vt_json_string(w, "op", o->op);
    vt_json_string(w, "impl", o->impl);
    vt_json_real(w, "calls", o->n_calls / n_steps);
    for (int i = 0; i < VT_VITALS; i++) {
        bool some = o->n[i] == o->n_calls;
        double v = vt_vitals[i].percent ? o->sum[i] / o->time[i] : o->sum[i] / n_steps;
        if (i == VT_VITAL_TIME)
            put_us(w, "time_us", some ? v * 1e-9 : NAN, measured);
        else
            vt_json_tagged(w, vt_vitals[i].key, some ? v : NAN, vt_vitals[i].percent ? 4 : 0,
                           measured);
    }
    bool whole = o->n_whole == o->n_calls;
    vt_json_tagged(w, "compulsory_bytes", whole ? o->bytes / n_steps : NAN, 0, derived);
    vt_json_tagged(w, "of_compulsory", counted_of_compulsory(o), 4, derived);
    vt_json_close(w);
}

static void put_missing_vitals(vt_json *w, const story_source *from)
{
    vt_json_open(w, "not_counted", '[');
    for (int i = 0; from->is.vital_set && i < VT_VITALS; i++) {
        if (!from->is.vital_set->why_not[i][0])
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "counter", vt_vitals[i].key);
        vt_json_string(w, "why", from->is.vital_set->why_not[i]);
        vt_json_close(w);
    }
    vt_json_close(w);
}

double counted_of_compulsory(const counted_op *o)
{
    double moved = o->sum[VT_VITAL_DRAM_READ] + o->sum[VT_VITAL_DRAM_WRITTEN];
    return o->n_whole == o->n_calls && o->bytes > 0 ? moved / o->bytes : NAN;
}

vt_status story_count_calls(const story_input *in, story_record *r, story_step *plan,
                            counted_phase out[STORY_PHASES], vt_err *err)
{
    static const char *const name[STORY_PHASES] = {"prefill", "decode"};
    const story_source *from = story_find_source(in, VT_SOURCE_STREAM);
    for (int i = 0; i < STORY_PHASES; i++) {
        out[i] = (counted_phase){.name = name[i]};
        out[i].op = vt_arena_alloc(&r->arena, MAX_OPS, sizeof *out[i].op);
        if (!out[i].op)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    }
    if (from)
        sum_up(in, from, r, plan, out);
    for (int i = 0; i < STORY_PHASES; i++)
        qsort(out[i].op, (size_t)out[i].n_ops, sizeof *out[i].op, by_time);
    return VT_OK;
}

void story_put_gpu_counters(vt_json *w, const story_input *in,
                            const counted_phase phases[STORY_PHASES])
{
    const story_source *from = story_find_source(in, VT_SOURCE_STREAM);
    if (!from || (!from->is.vitals && !from->is.no_vitals)) {
        vt_json_null(w, "gpu_counters");
        return;
    }
    vt_json_open(w, "gpu_counters", '{');
    vt_json_string(w, "tier", "T3");
    vt_json_string(w, "why", from->is.no_vitals);
    vt_json_open(w, "phases", '[');
    for (int i = 0; i < STORY_PHASES; i++) {
        const counted_phase *p = &phases[i];
        if (p->n_steps == 0)
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "name", p->name);
        vt_json_int(w, "counted_steps", p->n_steps);
        vt_json_open(w, "ops", '[');
        for (int32_t k = 0; k < p->n_ops; k++)
            put_op(w, &p->op[k], p->n_steps);
        vt_json_close(w);
        vt_json_close(w);
    }
    vt_json_close(w);
    put_missing_vitals(w, from);
    vt_json_close(w);
}
