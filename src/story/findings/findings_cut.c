/* Rules about how an op's work is cut (findings.h): waves, their tail, occupancy.
 *
 *   132 SMs x 2 CTAs = 264 places        a launch of 300 CTAs
 *
 *   wave 1   ################################  264 CTAs
 *   wave 2   ####............................   36 CTAs: the tail, 228 places stay empty
 *
 * Where all CTAs take as long, such a launch takes the time of two full waves: the share of the
 * places that stay empty could go at most. On a CPU the same holds for items and workers.
 *
 * On a GPU the numbers come from the newest launch of the kernel and NVIDIA's rules
 * (cuda/occupancy.h). A kernel that stays on its SM and takes one tile after another has more
 * tiles than CTAs: there its CTAs are the places. Where no launch was kept, and on a CPU, the row
 * says how it cuts its work (vt_cut, ops/op.h).
 *
 * All rules are about ops of weight that are far below their roof: an op at its roof keeps the
 * memory busy, however its work is cut. */
#include <math.h>

#include "story/findings/findings_inside.h"
#include "story/record/gpu.h"

static const double worth_a_look = 0.10; /* of the phase's device time */
static const double near_roof = 0.60;
static const double empty_tail = 0.20; /* of the places of all waves */
static const double few_ctas = 0.80;   /* of the SMs, or workers */
static const double low_occupancy = 0.25;

/* How the calls of an op kind fill the device. */
typedef struct filling {
    int64_t items;
    const char *item, *place; /* what they are called */
    int32_t workers;          /* SMs, or workers of a CPU's team */
    int32_t resident;         /* items that each holds at once */
    double waves, tail;       /* waves 0: not known */
} filling;

static filling fill_of(const phase *p, const op_sum *o)
{
    vt_occupancy by_rule;
    vt_occupancy_input launch;
    const kernel_sum *k = op_kernel(o);
    const vt_cut *cut = &o->first_cut;
    filling f = {.items = cut->items,
                 .item = "item",
                 .place = p->n_lanes ? "SM" : "worker",
                 .workers = cut->workers,
                 .resident = cut->resident > 1 ? cut->resident : 1};
    if (k && story_gpu_occupancy(k->source, kernel_facts(k), &launch, &by_rule)) {
        int64_t places = (int64_t)launch.sm_count * by_rule.ctas;
        if (cut->items > launch.grid && launch.grid <= places)
            f = (filling){cut->items, "tile", "CTA", (int32_t)launch.grid, 1, 0, 0};
        else
            f = (filling){launch.grid, "CTA", "SM", launch.sm_count, by_rule.ctas, 0, 0};
    }
    if (f.items > 0 && f.workers > 0) {
        f.waves = (double)f.items / ((double)f.workers * f.resident);
        f.tail = 1 - f.waves / ceil(f.waves);
    }
    return f;
}

/* The evidence about an op's cut, and the end of its finding. */
static void end_cut(findings *f, const phase *p, const op_sum *o, const filling *c)
{
    finding_links(f, o->slowest_step, o->slowest);
    finding_cause(f, "op %s", o->kind);
    vt_json_string(f->w, "phase", p->name);
    vt_json_string(f->w, "op", o->kind);
    vt_json_int(f->w, "items", c->items);
    vt_json_int(f->w, "workers", c->workers);
    vt_json_int(f->w, "resident", c->resident);
    vt_json_real(f->w, "waves", c->waves);
    vt_json_real(f->w, "tail", c->tail);
    finding_end(f);
}

/* Returns what could go of the op's time over the whole request, if `share` of it could. */
static double gain_of(const phase *p, const op_sum *o, double share)
{
    double s = fmin(op_usual_s(o) * share, op_usual_s(o) - o->floor_s);
    return s / p->n_timed * p->n_steps;
}

static void judge_waves(findings *f, const phase *p, const op_sum *o)
{
    filling c = fill_of(p, o);
    double busy = c.workers ? fmin(1, (double)c.items / c.workers) : 1;
    if (c.waves > 1 && c.tail > empty_tail) {
        finding_begin(f, 'W', "wave.tail",
                      "20 % of the places of all waves, for ops above 10 % of "
                      "the time",
                      "%s %s: its %lld %ss fill %.2f waves of %lld, so the last one is %.0f %% "
                      "empty and costs up to %.0f %% of the op's time",
                      p->name, o->kind, (long long)c.items, c.item, c.waves,
                      (long long)c.workers * c.resident, 100 * (ceil(c.waves) - c.waves),
                      100 * c.tail);
        finding_gain(f, gain_of(p, o, c.tail));
        end_cut(f, p, o, &c);
    } else if (c.waves > 0 && busy < few_ctas) {
        finding_begin(f, 'W', "wave.few",
                      "80 % of the SMs or workers, for ops above 10 % of the "
                      "time",
                      "%s %s: its %lld %s%s leave %lld of %d %ss without work", p->name, o->kind,
                      (long long)c.items, c.item, c.items == 1 ? "" : "s",
                      (long long)(c.workers - c.items), c.workers, c.place);
        finding_gain(f, gain_of(p, o, 1 - busy));
        end_cut(f, p, o, &c);
    }
}

static void judge_occupancy(findings *f, const phase *p, const op_sum *o)
{
    vt_occupancy by_rule;
    vt_occupancy_input launch;
    char more[STORY_CTA_MORE];
    const kernel_sum *k = op_kernel(o);
    if (!k || !story_gpu_occupancy(k->source, kernel_facts(k), &launch, &by_rule) ||
        by_rule.share > low_occupancy || by_rule.limit == VT_LIMIT_NONE || by_rule.waves < 1)
        return;
    bool known = story_gpu_cta_more(kernel_facts(k), &by_rule, more);
    finding_begin(f, 'N', "occupancy", "25 % of an SM's warps, for ops above 10 % of the time",
                  "%s %s: an SM holds %d CTA%s of its kernel, %d of %d warps, by %s%s%s", p->name,
                  o->kind, by_rule.ctas, by_rule.ctas == 1 ? "" : "s", by_rule.warps,
                  by_rule.max_warps, vt_occupancy_limit_name(by_rule.limit), known ? "; " : "",
                  known ? more : "");
    finding_links(f, o->slowest_step, o->slowest);
    finding_cause(f, "op %s", o->kind);
    vt_json_string(f->w, "phase", p->name);
    vt_json_string(f->w, "op", o->kind);
    vt_json_string(f->w, "kernel", kernel_facts(k)->name);
    vt_json_real(f->w, "occupancy", by_rule.share);
    vt_json_string(f->w, "limited_by", vt_occupancy_limit_name(by_rule.limit));
    finding_end(f);
}

void findings_judge_cuts(findings *f, const phase *p)
{
    if (phase_too_few(p))
        return;
    for (int32_t i = 0; i < p->n_ops; i++) {
        const op_sum *o = &p->op[i];
        if (o->link || !(op_usual_s(o) > worth_a_look * phase_usual_s(p)) ||
            op_usual_of_roof(o) > near_roof)
            continue;
        judge_waves(f, p, o);
        judge_occupancy(f, p, o);
    }
}
