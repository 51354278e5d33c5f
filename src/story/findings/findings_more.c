/* Further rules (findings.h): what steps do to each other, to the host and to memory. */
#include <math.h>
#include <string.h>

#include "story/findings/findings_inside.h"

static const double launch_share = 0.10;  /* of a step */
static const double fusion_share = 0.02;  /* of a step */
static const double exposed_share = 0.05; /* of a step */
static const double stolen_share = 0.05;  /* of the decode time */
static const double lost_share = 0.02;    /* of the decode time */
static const double slope_share = 0.05;   /* of a step, over the contexts seen */
static const double slope_fit = 0.30;     /* r squared */
static const double slope_over = 2.0;     /* times what the bytes explain */
static const double cold_times = 1.5;     /* the typical step */
static const double worth_a_look = 0.10;  /* of the phase's device time */
enum { SLOPE_STEPS = 32, SLOPE_SPAN = 64, COLD_STEPS = 8 };

/* ---- neighbours that pass bytes through memory ---- */

/* Ops that do little work for a byte, which a neighbour could do as it reads or writes. */
static bool is_light(const vt_call *c, const vt_cost *cost)
{
    return !(c->op->is & VT_OP_HEAVY) && c->layer >= 0 && cost->read.kv == 0;
}

/* Adds a pair of a step to the sums of its kind; candidate[] is those sums. */
static void add_pair(const story_input *in, const story_step *plan, int32_t a, int32_t b,
                     double bytes, fusion *candidate, int32_t *n, int32_t max)
{
    const vt_program *p = story_step_program(plan);
    const char *from = story_call_kind(&p->call[a]), *to = story_call_kind(&p->call[b]);
    double roof = vt_roofs_bandwidth(&in->roofs), launch = fmax(in->roofs.kernel_s, 0);
    int32_t i = 0;
    while (i < *n && (strcmp(candidate[i].from, from) != 0 || strcmp(candidate[i].to, to) != 0))
        i++;
    if (i == max)
        return;
    if (i == *n)
        candidate[(*n)++] = (fusion){.from = from, .to = to, .call = a};
    candidate[i].n++;
    candidate[i].bytes += bytes;
    candidate[i].s += (roof > 0 ? 2 * bytes / roof : 0) + launch;
}

/* The pair of kinds whose bytes would bring most, in the step that `plan` is set for. */
static fusion best_fusion(const story_input *in, const story_step *plan)
{
    enum { MAX = 32 };
    fusion candidate[MAX], best = {0};
    int32_t n = 0, before = -1;
    vt_cost last = {0};
    for (int32_t i = 0; i < story_step_program(plan)->n_calls; i++) {
        const vt_call *c = &story_step_program(plan)->call[i];
        vt_cost cost, extra;
        if (!story_step_cost(plan, i, &cost, &extra))
            continue;
        if (before >= 0) {
            const vt_call *b = &story_step_program(plan)->call[before];
            int64_t bytes = last.write.activations < cost.read.activations ? last.write.activations
                                                                           : cost.read.activations;
            if (b->layer == c->layer && bytes > 0 && (is_light(b, &last) || is_light(c, &cost)))
                add_pair(in, plan, before, i, (double)bytes, candidate, &n, MAX);
        }
        before = i;
        last = cost;
    }
    for (int32_t i = 0; i < n; i++)
        if (candidate[i].s > best.s)
            best = candidate[i];
    return best;
}

static void find_fusions(const story_input *in, const story_record *r, story_step *plan,
                         story_more *out)
{
    bool found[STORY_PHASES] = {false};
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        int k = s->prefill ? STORY_PREFILL : STORY_DECODE;
        if (!s->typical || found[k] || !story_bind_step(r, s, plan))
            continue;
        found[k] = true;
        out->fusion[k] = best_fusion(in, plan);
    }
}

/* ---- host work that the device did not hide ---- */

static double overlap_s(span a, span b)
{
    int64_t from = a.begin_ns > b.begin_ns ? a.begin_ns : b.begin_ns,
            to = a.end_ns < b.end_ns ? a.end_ns : b.end_ns;
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

static double exposed_of(const story_record *r, int32_t i)
{
    enum { NEAR = 2 };
    const step_record *s = &r->step[i];
    double sum = 0;
    for (int part = 0; part < VT_PARTS; part++) {
        if (part == VT_PART_DRAFT) /* a device works then, on the step's guesses */
            continue;
        sum += span_s(s->part[part]);
        for (int32_t k = i > NEAR ? i - NEAR : 0; k <= i + NEAR && k < r->n_steps; k++)
            sum -= overlap_s(s->part[part], r->step[k].device);
    }
    return sum;
}

static void find_exposed(const story_record *r, const phase *decode, story_more *out)
{
    double most = 0, sum = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (!r->step[i].chosen || r->step[i].prefill)
            continue;
        double s = exposed_of(r, i);
        sum += s;
        if (s > most) {
            most = s;
            out->exposed_step = r->step[i].id;
        }
    }
    out->exposed_s = decode->n_steps ? sum / decode->n_steps : NAN;
}

/* ---- prompts of others in decode steps; a retraction's loss ---- */

/* The mean time of decode steps without a chunk; NAN: there are none. Timed steps of a GPU do not
 * count. */
static double alone_s(const story_record *r)
{
    double sum = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen || s->prefill || step_has_chunk(s) || step_is_timed(s) ||
            step_is_disturbed(s))
            continue;
        sum += span_s(s->device);
        n++;
    }
    return n ? sum / n : NAN;
}

static void find_stolen(const story_record *r, story_more *out)
{
    double alone = alone_s(r), longest = 0;
    for (int32_t i = 0; r->mine && i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        bool own = s->q_len > 1; /* the request's own tokens, after a retraction */
        double more = span_s(s->device) - alone;
        if (!s->chosen || s->prefill || own || !step_has_chunk(s) || !(more > 0))
            continue;
        out->n_stolen++;
        out->stolen_s += more;
        if (more > longest) {
            longest = more;
            out->stolen_step = s->id;
        }
    }
}

/* Finds what was computed when the request was retracted, and what the look-up after it found of
 * that. */
static void find_lost(const story_record *r, story_more *out)
{
    int64_t retracted_ns = 0;
    for (uint64_t i = 0; r->mine && i < r->n_events; i++) {
        const vt_request_event *e = &r->event[i];
        if (e->request != r->mine->id)
            continue;
        if (e->kind == VT_REQ_RETRACT)
            retracted_ns = e->retract.at_ns;
        if (e->kind != VT_REQ_MATCH || retracted_ns == 0)
            continue;
        int32_t had = 0;
        for (int32_t k = 0; k < r->n_steps; k++)
            if (r->step[k].chosen && r->step[k].device.begin_ns < retracted_ns)
                had = r->step[k].kv_len > had ? r->step[k].kv_len : had;
        int32_t gone = had - 1 - e->match.n_cached; /* the last token is always computed */
        out->lost_tokens += gone > 0 ? gone : 0;
        for (int32_t k = 0; gone > 0 && k < r->n_steps; k++) {
            const step_record *s = &r->step[k];
            if (s->chosen && s->device.begin_ns > e->match.begin_ns && s->q_len > 1) {
                out->lost_s += span_s(s->device);
                out->lost_step = s->id;
            }
        }
        retracted_ns = 0;
    }
}

/* ---- how the step grows with its context ---- */

/* KV bytes that a token of context adds to a decode step of one sequence. */
static double kv_bytes_a_token(const phase *d)
{
    double kv = 0, mean = d->n_timed ? (d->timed_kv_first + d->timed_kv_last) / 2.0 : 0;
    for (int32_t i = 0; i < d->n_ops; i++)
        kv += (double)d->op[i].cost.read.kv;
    return mean > 0 ? kv / d->n_timed / mean : NAN;
}

/* Least squares over the request's decode steps: time against context. */
static void find_slope(const story_input *in, const story_record *r, const phase *d,
                       story_more *out)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0, low = INFINITY, high = 0;
    double usual = d->n_timed ? d->timed_s / d->n_timed : NAN;
    for (int32_t i = 0; r->mine && i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        double t = span_s(s->device), kv = s->kv_len;
        if (!s->chosen || s->prefill || step_is_timed(s) || s->n_seqs != 1 ||
            step_is_disturbed(s) ||
            (!d->n_lanes && t > 2 * usual)) /* slow tokens have other causes */
            continue;
        n++;
        x += kv;
        y += t;
        xx += kv * kv;
        xy += kv * t;
        yy += t * t;
        low = fmin(low, kv);
        high = fmax(high, kv);
    }
    double var = xx - x * x / n, cov = xy - x * y / n, vary = yy - y * y / n;
    if (n < SLOPE_STEPS || !(high - low >= SLOPE_SPAN) || !(var > 0) || !(vary > 0) ||
        cov * cov / var / vary < slope_fit)
        return;
    out->n_slope = (int32_t)n;
    out->slope_s = cov / var;
    out->kv_mean = x / n;
    out->kv_span = high - low;
    out->slope_bytes_s = kv_bytes_a_token(d) / vt_roofs_bandwidth(&in->roofs);
}

static void find_cold(const story_record *r, const phase *d, story_more *out)
{
    const step_record *first = NULL;
    for (int32_t i = 0; !first && i < r->n_steps; i++)
        if (r->step[i].chosen && !r->step[i].prefill)
            first = &r->step[i];
    if (!first || d->n_timed < COLD_STEPS / 2 || d->n_steps < COLD_STEPS || step_is_timed(first) ||
        step_has_chunk(first) || step_is_disturbed(first))
        return;
    out->cold_s = span_s(first->device);
    out->cold_usual_s = phase_step_s(d);
    out->cold_step = first->id;
}

void story_find_more(const story_input *in, const story_record *r, story_step *plan,
                     const phase phases[STORY_PHASES], story_more *out)
{
    const phase *d = &phases[STORY_DECODE];
    *out = (story_more){.exposed_s = NAN};
    find_fusions(in, r, plan, out);
    find_exposed(r, d, out);
    find_stolen(r, out);
    find_lost(r, out);
    find_slope(in, r, d, out);
    find_cold(r, d, out);
}

/* ---- the rules ---- */

/* As many empty kernels as a phase launches, as far as their time is not that of work. */
static void judge_launch(findings *f, const story_input *in, const phase *p)
{
    double kernel_s = in->roofs.kernel_s, sum = 0, calls = 0;
    const op_sum *most = NULL;
    double most_s = 0;
    for (int32_t i = 0; i < p->n_ops && kernel_s > 0; i++) {
        const op_sum *o = &p->op[i];
        double s = fmin(o->s - o->floor_s, o->n_calls * kernel_s);
        if (o->link || !(s > 0))
            continue;
        sum += s;
        calls += o->n_calls;
        if (s > most_s) {
            most_s = s;
            most = o;
        }
    }
    if (!most || sum <= launch_share * p->ops_s)
        return;
    finding_begin(f, 'W', "launch", "10 % of a step",
                  "%s: starting and ending its %.0f calls takes up to %.0f %% of a step, %.1f us "
                  "each; most of it in %s",
                  p->name, calls / p->n_timed, 100 * sum / p->ops_s, kernel_s * 1e6, most->kind);
    vt_json_string(f->w, "phase", p->name);
    vt_json_real(f->w, "calls", calls / p->n_timed);
    vt_json_real(f->w, "kernel_us", kernel_s * 1e6);
    vt_json_real(f->w, "share", sum / p->ops_s);
    finding_gain(f, sum / p->n_timed * p->n_steps);
    finding_cause(f, "launch");
    finding_links(f, most->slowest_step, most->slowest);
    finding_end(f);
}

static void judge_fusion(findings *f, const story_input *in, const phase *p, const fusion *c)
{
    double step_s = p->n_timed ? p->timed_s / p->n_timed : NAN;
    if (!c->from || !(c->s > fusion_share * step_s))
        return;
    const char *call = in->program->call[c->call].label;
    finding_begin(f, 'N', "fusion.candidate", "2 % of a step",
                  "%s: %s -> %s pass %.2f MB a step through memory, %d times: as one call they "
                  "would save at most %.0f us of %.0f",
                  p->name, c->from, c->to, c->bytes * 1e-6, c->n, c->s * 1e6, step_s * 1e6);
    vt_json_string(f->w, "phase", p->name);
    vt_json_string(f->w, "from", c->from);
    vt_json_string(f->w, "to", c->to);
    vt_json_int(f->w, "pairs", c->n);
    vt_json_real(f->w, "bytes", c->bytes);
    finding_gain(f, c->s * p->n_steps);
    finding_links(f, 0, call);
    finding_end(f);
}

static void judge_host(findings *f, const phase *d, const story_more *m)
{
    double step_s = phase_step_s(d);
    if (!(m->exposed_s > exposed_share * step_s))
        return;
    finding_begin(f, 'W', "host.exposed", "5 % of a step",
                  "the engine's thread works for %.1f us a decode step of %.1f us while the device "
                  "waits: scheduling, preparing, publishing",
                  m->exposed_s * 1e6, step_s * 1e6);
    vt_json_real(f->w, "exposed_us", m->exposed_s * 1e6);
    vt_json_real(f->w, "step_us", step_s * 1e6);
    vt_json_int(f->w, "steps", d->n_steps);
    finding_gain(f, m->exposed_s * d->n_steps);
    finding_cause(f, "host");
    finding_links(f, m->exposed_step, NULL);
    finding_end(f);
}

static void judge_batch(findings *f, const phase *d, const story_more *m)
{
    if (m->stolen_s > stolen_share * d->device_s) {
        finding_begin(f, 'W', "prefill.steals", "5 % of the decode time",
                      "prompts of other requests were in %d of its %d decode steps and made them "
                      "%.1f ms longer, %.0f %% of its decode time",
                      m->n_stolen, d->n_steps, m->stolen_s * 1e3, 100 * m->stolen_s / d->device_s);
        vt_json_int(f->w, "steps", m->n_stolen);
        vt_json_real(f->w, "ms", m->stolen_s * 1e3);
        finding_gain(f, m->stolen_s);
        finding_cause(f, "prefill");
        finding_links(f, m->stolen_step, NULL);
        finding_end(f);
    }
    if (m->lost_tokens > 0 && m->lost_s > lost_share * d->device_s) {
        finding_begin(f, 'W', "cache.miss", "2 % of the decode time",
                      "%d tokens that were computed before a retraction had left the cache when "
                      "the request came back: %.1f ms of steps computed them again",
                      m->lost_tokens, m->lost_s * 1e3);
        vt_json_int(f->w, "tokens", m->lost_tokens);
        vt_json_real(f->w, "ms", m->lost_s * 1e3);
        finding_gain(f, m->lost_s);
        finding_links(f, m->lost_step, NULL);
        finding_end(f);
    }
}

static void judge_slope(findings *f, const phase *d, const story_more *m)
{
    double step_s = phase_step_s(d), over = m->slope_s - m->slope_bytes_s;
    bool steep = m->slope_s > slope_over * m->slope_bytes_s;
    if (m->n_slope == 0 || !(m->slope_s * m->kv_span > slope_share * step_s))
        return;
    finding_begin(f, steep ? 'W' : 'N', "itl.slope", "5 % of a step over the contexts seen",
                  "a decode step grows by %.2f us per 100 tokens of context; reading their K and V "
                  "explains %.2f us",
                  m->slope_s * 1e8, m->slope_bytes_s * 1e8);
    vt_json_real(f->w, "us_per_100_tokens", m->slope_s * 1e8);
    vt_json_real(f->w, "explained_us_per_100_tokens", m->slope_bytes_s * 1e8);
    vt_json_int(f->w, "steps", m->n_slope);
    if (steep)
        finding_gain(f, over * m->kv_mean * d->n_steps);
    finding_cause(f, "op %s", vt_op_that_is(VT_OP_DECODES)->name);
    finding_end(f);
}

static void judge_cold(findings *f, const story_more *m)
{
    if (m->cold_step == 0 || !(m->cold_s > cold_times * m->cold_usual_s))
        return;
    finding_begin(f, 'N', "cold.first", "1.5 times the typical step",
                  "the first decode step took %.2f ms, %.1f times the typical one: caches and "
                  "pages were touched for the first time",
                  m->cold_s * 1e3, m->cold_s / m->cold_usual_s);
    vt_json_real(f->w, "first_ms", m->cold_s * 1e3);
    vt_json_real(f->w, "typical_ms", m->cold_usual_s * 1e3);
    vt_json_real(f->w, "once_ms", (m->cold_s - m->cold_usual_s) * 1e3);
    finding_gain(f, m->cold_s - m->cold_usual_s);
    finding_links(f, m->cold_step, NULL);
    finding_end(f);
}

/* Judges what single calls took beyond their usual time, which the rules about their ops leave
 * out. */
static void judge_once(findings *f, const phase *p)
{
    bool prefill = strcmp(p->name, "prefill") == 0;
    for (int32_t i = 0; i < p->n_ops && !phase_too_few(p); i++) {
        const op_sum *o = &p->op[i];
        const op_once *c = &o->once;
        if (c->n == 0 || !(o->s > worth_a_look * p->ops_s))
            continue;
        finding_begin(f, 'N', c->first ? "cold.first" : "call.once",
                      "5 times the median and 20 % of the op, for ops above 10 % of the time",
                      "%s %s: %s (layer %d) took %.3g ms, %.0f times the median of its calls%s: "
                      "%s%s",
                      p->name, o->kind, c->first ? "its first call" : "a call", c->layer,
                      c->s * 1e3, c->s / c->usual_s, c->n > 1 ? " (another one was slow, too)" : "",
                      !c->first    ? "something held it up that did not hold up the others"
                      : p->n_lanes ? "a library or a kernel was started here"
                                   : "caches and pages were touched for the first time",
                      !c->first ? ""
                      : prefill ? "; a second prompt of this size does not pay it"
                                : "; later steps do not pay it");
        vt_json_string(f->w, "phase", p->name);
        vt_json_string(f->w, "op", o->kind);
        vt_json_int(f->w, "layer", c->layer);
        vt_json_int(f->w, "calls", c->n);
        vt_json_real(f->w, "first_ms", c->s * 1e3);
        vt_json_real(f->w, "typical_ms", c->usual_s * 1e3);
        vt_json_real(f->w, "once_ms", c->excess_s * 1e3);
        finding_gain(f, c->excess_s);
        finding_cause(f, "%s", c->first ? "start" : "");
        finding_links(f, c->step, c->call);
        finding_end(f);
    }
}

void findings_judge_more(findings *f, const story_input *in, const phase phases[STORY_PHASES],
                         const story_more *m)
{
    const phase *d = &phases[STORY_DECODE];
    for (int i = 0; i < STORY_PHASES; i++) {
        if (phases[i].n_timed == 0)
            continue;
        judge_launch(f, in, &phases[i]);
        judge_fusion(f, in, &phases[i], &m->fusion[i]);
        judge_once(f, &phases[i]);
    }
    if (d->n_steps == 0)
        return;
    judge_host(f, d, m);
    judge_batch(f, d, m);
    judge_slope(f, d, m);
    judge_cold(f, m);
}
