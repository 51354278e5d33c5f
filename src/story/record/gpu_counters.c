/* A GPU's hardware counters (gpu_counters.h).
 *
 * Each rank of several has counts of its own, and phases of its own here. Findings are made from
 * those of the first rank, whose work is the others'.
 *
 * Counts and times never meet here: every value is of the counted steps alone, and so are the
 * compulsory bytes that the counted ones stand beside. A share is the mean over calls, weighted by
 * the time that CUPTI saw each call take; a sum is the mean over calls times the calls of a step.
 * What warps waited for is a share of the cycles that they were there in the same calls. */
#include "story/record/gpu_counters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cupti/stalls.h"
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

/* `cost`: NULL: not known. */
static void add_call(counted_op *o, const vt_vital_event *e, const vt_cost *cost,
                     const vt_roofs *roofs)
{
    bool whole = cost && isfinite(e->value[VT_VITAL_DRAM_READ]) &&
                 isfinite(e->value[VT_VITAL_DRAM_WRITTEN]);
    double time = isfinite(e->value[VT_VITAL_TIME]) ? e->value[VT_VITAL_TIME] : 1;
    o->n_calls++;
    if (whole) {
        double bytes = (double)vt_cost_bytes(cost);
        o->n_whole++;
        o->bytes += bytes;
        o->memory_s += bytes / roofs->memory_bytes_per_s;
        o->tensor_s += (double)cost->flops.bf16 / roofs->bf16_per_s;
        if (cost->flops.fp8 > 0)
            o->tensor_s += (double)cost->flops.fp8 / roofs->fp8_per_s;
    }
    for (int i = 0; i < VT_VITALS; i++) {
        double v = e->value[i];
        if (!isfinite(v))
            continue;
        o->sum[i] += vt_vitals[i].percent ? v * time : v;
        o->time[i] += time;
        o->n[i]++;
        if (i >= VT_VITAL_STALLED && i < VT_VITAL_STALLED + VT_STALLS)
            o->warps[i - VT_VITAL_STALLED] += e->value[VT_VITAL_WARP_CYCLES];
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
            add_call(o, e, known ? &cost : NULL, from->roofs ? from->roofs : &in->roofs);
    }
}

/* The longest first. */
static int by_time(const void *a, const void *b)
{
    double x = ((const counted_op *)a)->sum[VT_VITAL_TIME],
           y = ((const counted_op *)b)->sum[VT_VITAL_TIME];
    return (x < y) - (x > y);
}

double counted_of_compulsory(const counted_op *o)
{
    double moved = o->sum[VT_VITAL_DRAM_READ] + o->sum[VT_VITAL_DRAM_WRITTEN];
    bool same = o->n_whole == o->n[VT_VITAL_DRAM_READ] && o->n_whole == o->n[VT_VITAL_DRAM_WRITTEN];
    return same && o->bytes > 0 ? moved / o->bytes : NAN;
}

double counted_mean(const counted_op *o, vt_vital vital)
{
    double of = vt_vitals[vital].percent ? o->time[vital] : o->n[vital];
    return o->n[vital] > 0 ? o->sum[vital] / of : NAN;
}

double counted_stalled(const counted_op *o, vt_stall stall)
{
    double cycles = o->sum[VT_VITAL_STALLED + stall];
    return o->warps[stall] > 0 ? cycles / o->warps[stall] : NAN;
}

/* Writes what the op's warps did with their cycles, the largest share first. */
static void put_waits(vt_json *w, const counted_op *o)
{
    bool told[VT_STALLS] = {false};
    vt_json_open(w, "waits", '[');
    for (;;) {
        int most = -1;
        for (int i = 0; i < VT_STALLS; i++)
            if (!told[i] && isfinite(counted_stalled(o, (vt_stall)i)) &&
                (most < 0 || counted_stalled(o, (vt_stall)i) > counted_stalled(o, (vt_stall)most)))
                most = i;
        if (most < 0)
            break;
        told[most] = true;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "reason", vt_stalls[most].name);
        vt_json_tagged(w, "share", counted_stalled(o, (vt_stall)most), 4, measured);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_op(vt_json *w, const counted_op *o, double n_steps)
{
    double calls = o->n_calls / n_steps;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "kind", o->kind);
    vt_json_string(w, "op", o->op);
    vt_json_string(w, "impl", o->impl);
    vt_json_real(w, "calls", calls);
    for (int i = 0; i < VT_VITALS; i++) {
        double v = counted_mean(o, (vt_vital)i) * (vt_vitals[i].percent ? 1 : calls);
        if (i == VT_VITAL_TIME)
            put_us(w, "time_us", v * 1e-9, measured);
        else if (i < VT_VITAL_STALLED || i >= VT_VITAL_STALLED + VT_STALLS)
            vt_json_tagged(w, vt_vitals[i].key, v, vt_vitals[i].percent ? 4 : 0, measured);
    }
    double bytes = o->n_whole > 0 ? o->bytes / o->n_whole * calls : NAN;
    vt_json_tagged(w, "compulsory_bytes", bytes, 0, derived);
    vt_json_tagged(w, "of_compulsory", counted_of_compulsory(o), 4, derived);
    put_waits(w, o);
    vt_json_close(w);
}

static bool has_ranks(const story_input *in) { return story_count(in, VT_SOURCE_STREAM) > 1; }

/* The next source from `from` on whose calls were to be counted; NULL: there is no other. */
static const story_source *next_counted(const story_input *in, const story_source *from)
{
    for (const story_source *s = from; s < in->source + in->n_sources; s++)
        if (s->is.kind == VT_SOURCE_STREAM && (s->is.vitals || s->is.no_vitals))
            return s;
    return NULL;
}

static void put_missing_vitals(vt_json *w, const story_input *in)
{
    vt_json_open(w, "not_counted", '[');
    for (const story_source *s = next_counted(in, in->source); s; s = next_counted(in, s + 1))
        for (int i = 0; s->is.vital_sets && i < VT_VITALS; i++) {
            if (!s->is.vital_sets->why_not[i][0])
                continue;
            vt_json_open(w, NULL, '{');
            vt_json_string(w, "rank", has_ranks(in) ? s->is.name : NULL);
            vt_json_string(w, "counter", vt_vitals[i].key);
            vt_json_string(w, "why", s->is.vital_sets->why_not[i]);
            vt_json_close(w);
        }
    vt_json_close(w);
}

/* The words for the reasons, for readers of the file. */
static void put_reasons(vt_json *w)
{
    vt_json_open(w, "reasons", '[');
    for (int i = 0; i < VT_STALLS; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "reason", vt_stalls[i].name);
        vt_json_string(w, "label", vt_stalls[i].label);
        vt_json_string(w, "meaning", vt_stalls[i].meaning);
        vt_json_bool(w, "waits", vt_stall_waits((vt_stall)i));
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* The counts of a source; NULL: there is none. */
static vt_status count_calls(const story_input *in, const story_source *from, story_record *r,
                             story_step *plan, counted_phase out[STORY_PHASES], vt_err *err)
{
    static const char *const name[STORY_PHASES] = {"prefill", "decode"};
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

vt_status story_count_calls(const story_input *in, story_record *r, story_step *plan,
                            counted_phase out[STORY_PHASES], vt_err *err)
{
    return count_calls(in, next_counted(in, in->source), r, plan, out, err);
}

static void put_phases(vt_json *w, const char *rank, const counted_phase phases[STORY_PHASES])
{
    for (int i = 0; i < STORY_PHASES; i++) {
        const counted_phase *p = &phases[i];
        if (p->n_steps == 0)
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "name", p->name);
        vt_json_string(w, "rank", rank);
        vt_json_int(w, "counted_steps", p->n_steps);
        vt_json_open(w, "ops", '[');
        for (int32_t k = 0; k < p->n_ops; k++)
            put_op(w, &p->op[k], p->n_steps);
        vt_json_close(w);
        vt_json_close(w);
    }
}

vt_status story_put_gpu_counters(vt_json *w, const story_input *in, story_record *r,
                                 story_step *plan, const counted_phase phases[STORY_PHASES],
                                 vt_err *err)
{
    const story_source *first = next_counted(in, in->source);
    if (!first) {
        vt_json_null(w, "gpu_counters");
        return VT_OK;
    }
    vt_json_open(w, "gpu_counters", '{');
    vt_json_string(w, "tier", "T3");
    vt_json_string(w, "why", first->is.no_vitals);
    vt_json_open(w, "phases", '[');
    put_phases(w, has_ranks(in) ? first->is.name : NULL, phases);
    for (const story_source *s = next_counted(in, first + 1); s; s = next_counted(in, s + 1)) {
        counted_phase other[STORY_PHASES];
        TRY(count_calls(in, s, r, plan, other, err));
        put_phases(w, s->is.name, other);
    }
    vt_json_close(w);
    put_missing_vitals(w, in);
    put_reasons(w);
    vt_json_close(w);
    return VT_OK;
}
