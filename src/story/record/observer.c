/* Measures what recording costs (observer.h).
 *
 *   blocks of 8 decode steps    on | off | off | on | on | off | off | on ...
 *   pairs                       +----+     +----+    +----+     +----+
 *
 * A CPU's workers record op calls in every second block (vt_spans_on). Step i of a recorded block
 * is compared with step i of the unrecorded block beside it. In one pair of blocks the recorded one
 * comes first and in the next pair it comes second, so a context that grows adds to one difference
 * what it takes from another. Only steps of decodes alone, with as many sequences, that nothing
 * disturbed are compared.
 *
 * A GPU runs a step in the same time whether or not the host records it. Where the host takes too
 * long, the next step begins late, so there a step's time is that from the end of the step before
 * it to its own end. Neither of the two steps may be one that ran call by call.
 *
 * The median of the differences has an interval that assumes nothing about their distribution: of n
 * sorted differences, those at rank k from either end enclose the median with a chance of 95 %,
 * where k is the largest number with P(Binomial(n, 1/2) < k) <= 2.5 %. That takes 6 pairs. */
#include "story/record/observer.h"

#include <math.h>

#include "base/err.h"
#include "base/stats.h"
#include "story/record/gpu.h"
#include "story/record/numbers.h"

/* The rank k of the interval's lower end, from 1; 0: n is too small. */
static int32_t low_rank(int32_t n)
{
    double chance = exp2(-n), sum = 0; /* of exactly k heads in n throws */
    if (n > 500)                       /* exp2 would become too small: the normal distribution */
        return (int32_t)floor(0.5 * n - 0.98 * sqrt(n));
    for (int32_t k = 0; k <= n; k++) {
        sum += chance;
        if (sum > 0.025)
            return k;
        chance *= (double)(n - k) / (k + 1);
    }
    return 0;
}

static bool fits(const step_record *s)
{
    return s && s->chosen && s->n_tokens == s->n_decode && !s->use.disturbed &&
           s->device.end_ns > s->device.begin_ns;
}

/* A step's time, as the comparison takes it; NAN: it cannot be compared. */
static double time_of(const story_record *r, const step_record *s, bool gpu)
{
    const step_record *before = gpu ? story_find_step(r, s->id - 1) : NULL;
    if (!fits(s))
        return NAN;
    if (!gpu)
        return span_s(s->device);
    return fits(before) && !step_is_timed(before) && !step_is_timed(s)
               ? (double)(s->device.end_ns - before->device.end_ns) * 1e-9
               : NAN;
}

vt_status story_measure_tax(const story_input *in, story_record *r, observer_tax *out, vt_err *err)
{
    *out = (observer_tax){.off_s = NAN, .tax = NAN, .tax_low = NAN, .tax_high = NAN};
    double *difference = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *difference);
    double *off = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *off);
    if (!difference || !off)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    int32_t n = 0;
    bool gpu = story_on_gpu(in);
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *on = &r->step[i], *other;
        if (!vt_spans_on(on->id))
            continue;
        bool first = on->id / VT_SPAN_BLOCK % 4 == 0;
        other = story_find_step(r, first ? on->id + VT_SPAN_BLOCK : on->id - VT_SPAN_BLOCK);
        if (!other || other->n_seqs != on->n_seqs || step_graph(other) != step_graph(on))
            continue;
        double on_s = time_of(r, on, gpu), off_s = time_of(r, other, gpu);
        if (isnan(on_s) || isnan(off_s))
            continue;
        off[n] = off_s;
        difference[n++] = on_s - off_s;
    }
    out->n_pairs = n;
    int32_t k = low_rank(n);
    if (k < 1)
        return VT_OK;
    out->off_s = vt_median(off, (size_t)n);
    out->tax = vt_median(difference, (size_t)n) / out->off_s; /* sorts */
    vt_sort_doubles(difference, (size_t)n);
    out->tax_low = difference[k - 1] / out->off_s;
    out->tax_high = difference[n - k] / out->off_s;
    return VT_OK;
}

static void put_cpu(vt_json *w, const story_input *in, const phase *d)
{
    double calls = 0;
    for (int32_t i = 0; i < d->n_ops; i++)
        calls += d->op[i].n_calls;
    double events = d->n_timed ? calls / d->n_timed : NAN;
    double cost_s = events * in->event_cost_ns * 1e-9;
    vt_json_tagged(w, "events_per_step", events, 0, derived);
    vt_json_tagged(w, "event_ns", in->event_cost_ns, 1, measured);
    put_us(w, "step_us", cost_s, derived);
    vt_json_tagged(w, "tax", d->n_timed ? cost_s / (d->timed_s / d->n_timed) : NAN, 5, derived);
}

void story_put_observer(vt_json *w, const story_input *in, const observer_tax *t, const phase *d)
{
    vt_json_open(w, "observer", '{');
    if (d->n_lanes)
        story_gpu_observer(w, d, phase_stream(d));
    else
        put_cpu(w, in, d);
    vt_json_int(w, "pairs", t->n_pairs);
    put_us(w, "off_us", t->off_s, measured);
    vt_json_tagged(w, "measured_tax", t->tax, 5, measured);
    vt_json_tagged(w, "measured_tax_low", t->tax_low, 5, measured);
    vt_json_tagged(w, "measured_tax_high", t->tax_high, 5, measured);
    vt_json_close(w);
}
