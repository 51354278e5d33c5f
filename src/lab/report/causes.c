/* Signs of kernels, and telling what they mean (causes.h). */
#include "lab/report/causes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

lab_signs lab_signs_none(void)
{
    return (lab_signs){.time_s = NAN,
                       .launch_s = NAN,
                       .of_roof = NAN,
                       .memory_share = NAN,
                       .issue_share = NAN,
                       .matrix_share = NAN,
                       .barrier_share = NAN,
                       .memory_waits = NAN,
                       .spill_bytes = NAN,
                       .occupancy = NAN,
                       .ctas_a_sm = NAN,
                       .tail = NAN,
                       .partial_share = NAN,
                       .sequential_s = NAN,
                       .scattered_s = NAN,
                       .saved_tokens = NAN,
                       .saved_time = NAN,
                       .reduce_s = NAN,
                       .reduce_floor_s = NAN,
                       .reduce_copies = NAN,
                       .first_s = NAN,
                       .later_s = NAN,
                       .spread = NAN,
                       .n_different = NAN};
}

lab_signs lab_signs_kernel(const lab *l, const lab_kernel *k)
{
    lab_signs s = lab_signs_none();
    double launch_s = vt_roofs_launch_s(&l->roofs, false);
    s.gpu = l->ordinal >= 0;
    s.time_s = k->median_s;
    s.launch_s = launch_s > 0 ? launch_s : NAN;
    s.of_roof = k->of_roof;
    s.bound = k->bound;
    s.spill_bytes = k->spill_bytes >= 0 ? k->spill_bytes : NAN;
    s.occupancy = k->occupancy;
    s.limited_by = k->limited_by[0] ? k->limited_by : NULL;
    s.ctas_a_sm = k->waves > 0 && k->ctas_per_sm > 0 ? k->waves * k->ctas_per_sm : NAN;
    s.tail = k->waves > 1 ? k->tail : NAN;
    s.partial_share = k->bytes > 0 ? k->extra_bytes / k->bytes : NAN;
    return s;
}

#define STALL(reason) "smsp__average_warps_issue_stalled_" reason "_per_issue_active.ratio"

void lab_signs_add_ncu(lab_signs *s, const ncu_report *r, int32_t launch, double memory_bytes_per_s)
{
    static const char *const stall[] = {STALL("barrier"),
                                        STALL("long_scoreboard"),
                                        STALL("short_scoreboard"),
                                        STALL("math_pipe_throttle"),
                                        STALL("wait"),
                                        STALL("mio_throttle"),
                                        STALL("lg_throttle"),
                                        STALL("gmma"),
                                        STALL("not_selected"),
                                        STALL("no_instruction")};
    double v[sizeof stall / sizeof *stall],
        sum = 0, bytes = ncu_report_number(r, launch, "dram__bytes.sum"),
        time_s = ncu_report_number(r, launch, "gpu__time_duration.sum");
    for (size_t i = 0; i < sizeof stall / sizeof *stall; i++) {
        v[i] = ncu_report_number(r, launch, stall[i]);
        sum += isfinite(v[i]) ? v[i] : 0;
    }
    if (sum > 0) {
        s->barrier_share = v[0] / sum;
        s->memory_waits = v[1] / sum;
    }
    if (memory_bytes_per_s > 0 && time_s > 0)
        s->memory_share = bytes / time_s / memory_bytes_per_s;
    s->issue_share = ncu_report_number(r, launch,
                                       "smsp__issue_active.avg.pct_of_peak_sustained_active");
    s->matrix_share = ncu_report_number(
        r, launch, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active");
}

bool lab_has_told(const lab *l, const char *rule)
{
    const json_t *f;
    size_t i;
    json_array_foreach(json_object_get(l->result, "findings"), i, f)
    {
        const char *name = json_string_value(json_object_get(f, "rule"));
        if (name && strcmp(name, rule) == 0)
            return true;
    }
    return false;
}

void lab_tell_story_causes(lab *l, const json_t *story)
{
    const json_t *f, *list = json_object_get(story, "findings");
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, f)
    {
        char rule[64];
        const char *name = json_string_value(json_object_get(f, "rule")),
                   *text = json_string_value(json_object_get(f, "text"));
        const report_cause *c = name && text ? report_cause_of_finding(name) : NULL;
        if (!c || strncmp(name, "machine.", 8) == 0) /* the result's state says that */
            continue;
        if (c->kernel && l->ordinal < 0) /* rows of kernels speak of CTAs, SMs and coalescing */
            continue;
        snprintf(rule, sizeof rule, "cause.%s", c->key);
        if (!lab_has_told(l, rule))
            lab_finding(l, rule, "%s. Likely cause: %s. What to do: %s", text, c->cause, c->action);
    }
}

void lab_tell_causes(lab *l, const lab_signs *s, const char *what)
{
    enum { MOST = 4 };
    const report_cause *c[MOST];
    int32_t n = l->emulated || l->busy ? 0 : report_causes_of(s, c, MOST);
    for (int32_t i = 0; i < n; i++) {
        char rule[64];
        snprintf(rule, sizeof rule, "cause.%s", c[i]->key);
        lab_finding(l, rule, "%s: %s. Likely cause: %s. What to do: %s", what, c[i]->seen,
                    c[i]->cause, c[i]->action);
    }
}
