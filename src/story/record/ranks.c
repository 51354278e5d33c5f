/* "hardware" and "ranks" of a story.json (ranks.h, docs/story-format.md).
 *
 *   rank 0  | step 41 =========|...|      ended before rank 1: it waited at the end of the step
 *   rank 1  | step 41 =============|
 *   rank 0  | call 7 ===|.wait.|          a timed step: within a call, the stream itself says so
 *   rank 1  | call 7 ==========|
 *
 * How long a rank works against its roofs is judged by the roofs of its own device. */
#include "story/record/ranks.h"

#include <math.h>
#include <stdio.h>

#include "story/record/gpu.h"
#include "story/record/numbers.h"

static const double long_waits = 0.05; /* of a rank's time */

void story_put_roofs(vt_json *w, const vt_roofs *r)
{
    vt_json_open(w, "roofs", '{');
    for (int i = 0; i < VT_ROOFS; i++) {
        vt_roof_kind kind = (vt_roof_kind)i;
        double v = vt_roof_get(r, kind);
        vt_roof_tag tag = r->mark[i].tag == VT_ROOF_ABSENT ? VT_ROOF_MEASURED : r->mark[i].tag;
        bool time = !vt_roof_rows[i].unit;
        vt_json_tagged(w, vt_roof_rows[i].key, v > 0 ? v * (time ? 1e6 : 1) : NAN, time ? 3 : 0,
                       vt_roof_tag_name[tag]);
    }
    vt_json_int(w, "memory_working_set_bytes", r->far_bytes);
    vt_json_int(w, "weights_working_set_bytes", r->near_bytes);
    vt_json_int(w, "copy_working_set_bytes", r->copy_bytes);
    vt_json_int(w, "l2_working_set_bytes", r->l2_bytes);
    vt_json_int(w, "l3_working_set_bytes", r->l3_bytes);
    vt_json_int(w, "link_bytes", r->link_bytes);
    vt_json_int(w, "l2_size_bytes", r->l2_size);
    vt_json_int(w, "l3_size_bytes", r->l3_size);
    vt_json_close(w);
}

/* ---- hardware ---- */

/* Returns true if two sources are lanes of one device: workers of one CPU, or streams of one
 * GPU. */
static bool same_device(const story_source *a, const story_source *b)
{
    return a->is.kind == b->is.kind && a->roofs == b->roofs &&
           a->is.device.ordinal == b->is.device.ordinal;
}

/* The index of the first source of the same device. */
static int32_t device_of(const story_input *in, int32_t source)
{
    int32_t k = 0;
    while (!same_device(&in->source[k], &in->source[source]))
        k++;
    return k;
}

static void put_hardware(vt_json *w, const story_input *in)
{
    vt_json_open(w, "hardware", '[');
    for (int32_t k = 0; k < in->n_sources; k++) {
        const story_source *s = &in->source[k];
        const vt_roofs *roofs = story_roofs(in, s);
        if (s->is.kind == VT_SOURCE_ENGINE || device_of(in, k) != k)
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "name", roofs->name);
        vt_json_string(w, "level", s->is.device.level);
        vt_json_open(w, "lanes", '[');
        for (int32_t i = k; i < in->n_sources; i++)
            if (device_of(in, i) == k)
                vt_json_string(w, NULL, in->source[i].is.name);
        vt_json_close(w);
        story_put_roofs(w, roofs);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* The place of a source's device in "hardware". */
static int32_t hardware_of(const story_input *in, int32_t source)
{
    int32_t n = 0, device = device_of(in, source);
    for (int32_t k = 0; k < device; k++)
        n += in->source[k].is.kind != VT_SOURCE_ENGINE && device_of(in, k) == k;
    return n;
}

/* ---- ranks ---- */

static const lane_wait *wait_of(const story_input *in, const story_record *r, int32_t from,
                                int32_t to)
{
    return &r->wait[from * in->n_sources + to];
}

/* Seconds for which a rank waited for all others. */
static double waited_s(const story_input *in, const story_record *r, int32_t source)
{
    double s = 0;
    for (int32_t k = 0; k < in->n_sources; k++)
        s += wait_of(in, r, source, k)->call_s + wait_of(in, r, source, k)->end_s;
    return s;
}

static void put_waited_for(vt_json *w, const story_input *in, const story_record *r, int32_t source)
{
    vt_json_open(w, "waited_for", '[');
    for (int32_t k = 0; k < in->n_sources; k++) {
        const lane_wait *x = wait_of(in, r, source, k);
        if (x->n_calls + x->n_ends == 0)
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "rank", in->source[k].is.name);
        vt_json_int(w, "calls", x->n_calls);
        put_ms(w, "calls_ms", x->call_s, measured);
        vt_json_int(w, "steps", x->n_ends);
        put_ms(w, "steps_ms", x->end_s, measured);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_phases(vt_json *w, const story_source *s, const phase phases[STORY_PHASES])
{
    vt_json_open(w, "phases", '[');
    for (int i = 0; i < STORY_PHASES; i++)
        for (int32_t k = 0; k < phases[i].n_lanes && phases[i].n_steps; k++) {
            const phase_lane *l = &phases[i].lane[k];
            if (l->source != s)
                continue;
            vt_json_open(w, NULL, '{');
            vt_json_string(w, "name", phases[i].name);
            put_us(w, "step_us", l->n_steps ? l->device_s / l->n_steps : NAN, measured);
            vt_json_tagged(w, "of_roof", l->typical_s > 0 ? l->floor_s / l->typical_s : NAN, 4,
                           derived);
            story_gpu_phase(w, &phases[i], l);
            vt_json_close(w);
        }
    vt_json_close(w);
}

/* Returns the bytes that a rank moves in the communication calls of the steps that are summed. */
static double joined_bytes(const story_input *in, const story_record *r, int32_t source,
                           story_step *plan)
{
    const vt_program *p = in->program;
    double bytes = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (!story_is_summed(r, &r->step[i]) || !story_bind_step(r, &r->step[i], plan))
            continue;
        for (int32_t k = 0; k < p->n_calls; k++) {
            vt_cost cost, extra;
            if (p->call[k].op->is & VT_OP_JOINS_RANKS && story_step_cost(plan, k, &cost, &extra))
                bytes += (double)vt_cost_bytes(&cost) / in->source[source].is.n_ranks;
        }
    }
    return bytes;
}

/* Writes what a CPU's rank did in calls that join ranks, by its first worker. */
static void put_communication(vt_json *w, const story_input *in, const story_record *r,
                              int32_t source, story_step *plan)
{
    const lane_sum *sum = &r->sum[source];
    if (sum->n_joins == 0 || in->source[source].is.n_ranks < 2) {
        vt_json_null(w, "communication");
        return;
    }
    vt_json_open(w, "communication", '{');
    vt_json_int(w, "calls", sum->n_joins);
    put_ms(w, "wait_ms", sum->join_wait_s, measured);
    put_ms(w, "transfer_ms", sum->join_s, measured);
    vt_json_tagged(w, "bytes", joined_bytes(in, r, source, plan), 0, derived);
    vt_json_close(w);
}

/* Writes the name of a rank: on a CPU, where its source is a worker, "rank 1". */
static void put_rank_name(vt_json *w, const vt_source *is)
{
    char name[16];
    snprintf(name, sizeof name, "rank %d", is->rank);
    vt_json_string(w, "name", is->kind == VT_SOURCE_WORKER ? name : is->name);
}

static void put_rank(vt_json *w, const story_input *in, const story_record *r, int32_t source,
                     story_step *plan, const phase phases[STORY_PHASES])
{
    const story_source *s = &in->source[source];
    const lane_sum *sum = &r->sum[source];
    vt_json_open(w, NULL, '{');
    put_rank_name(w, &s->is);
    vt_json_int(w, "hardware", hardware_of(in, source));
    vt_json_int(w, "steps", sum->n_steps);
    put_ms(w, "device_ms", sum->device_s, measured);
    put_ms(w, "idle_ms", sum->idle_s, measured);
    put_ms(w, "busy_ms", sum->busy_s, measured);
    put_ms(w, "wait_ms", sum->wait_s, measured);
    put_ms(w, "waited_ms", waited_s(in, r, source), measured);
    vt_json_int(w, "late_calls", sum->n_late_calls);
    vt_json_int(w, "last_steps", sum->n_last);
    put_waited_for(w, in, r, source);
    put_phases(w, s, phases);
    put_communication(w, in, r, source, plan);
    if (s->is.kind == VT_SOURCE_STREAM)
        story_gpu_engine(w, s, story_roofs(in, s));
    vt_json_close(w);
}

/* Returns true if the source stands for a rank: a stream, or the first worker of a CPU's rank. */
static bool is_rank(const story_input *in, int32_t source)
{
    const vt_source *s = &in->source[source].is;
    if (s->kind == VT_SOURCE_STREAM)
        return story_count(in, VT_SOURCE_STREAM) > 1;
    return s->kind == VT_SOURCE_WORKER && s->n_ranks > 1 &&
           (source == 0 || in->source[source - 1].is.kind != VT_SOURCE_WORKER ||
            in->source[source - 1].is.rank != s->rank);
}

void story_put_ranks(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                     const phase phases[STORY_PHASES])
{
    bool several = false;
    put_hardware(w, in);
    vt_json_open(w, "ranks", '{');
    vt_json_open(w, "items", '[');
    for (int32_t k = 0; k < in->n_sources; k++)
        if (is_rank(in, k)) {
            put_rank(w, in, r, k, plan, phases);
            several = true;
        }
    vt_json_close(w);
    vt_json_string(w, "why", several ? NULL : "one device ran all steps");
    vt_json_close(w);
}

/* ---- the rule ---- */

void findings_judge_ranks(findings *f, const story_input *in, const story_record *r)
{
    double most = 0;
    int32_t early = 0, late = 0;
    for (int32_t a = 0; a < in->n_sources; a++)
        for (int32_t b = 0; b < in->n_sources; b++) {
            const lane_wait *x = wait_of(in, r, a, b);
            if (in->source[a].is.kind == VT_SOURCE_STREAM && x->call_s + x->end_s > most) {
                most = x->call_s + x->end_s;
                early = a;
                late = b;
            }
        }
    const lane_wait *x = wait_of(in, r, early, late);
    double time_s = r->sum[early].device_s + x->end_s;
    if (!(most > long_waits * time_s))
        return;
    finding_begin(f, 'W', "rank.waits", "5 % of a rank's time",
                  "%s waits for %s for %.0f %% of its time: %.3g ms in %d calls of timed steps, "
                  "%.3g ms at the end of %d steps",
                  in->source[early].is.name, in->source[late].is.name, 100 * most / time_s,
                  x->call_s * 1e3, x->n_calls, x->end_s * 1e3, x->n_ends);
    finding_gain(f, most);
    finding_cause(f, "rank %d", late);
    vt_json_string(f->w, "rank", in->source[early].is.name);
    vt_json_string(f->w, "waits_for", in->source[late].is.name);
    vt_json_real(f->w, "calls_ms", x->call_s * 1e3);
    vt_json_real(f->w, "steps_ms", x->end_s * 1e3);
    finding_end(f);
}
