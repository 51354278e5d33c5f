/* "lanes" and "tiers" of a story.json (places.h, docs/story-format.md). */
#include "story/record/watched/activity.h"
#include "story/record/watched/ctas.h"
#include "story/record/watched/lines.h"
#include "story/record/places.h"

#include <math.h>

#include "base/err.h"
#include "device/probe.h"
#include "story/record/columns.h"
#include "story/record/gpu_counters.h"
#include "story/record/numbers.h"
#include "story/record/pm_lanes.h"
#include "story/record/steps.h"
#include "story/record/workers.h"

/* ---- lanes ---- */

/* Writes what share of the workers' time went to calls, over the steps whose calls are known; each
 * value is the mean of several steps where there are more than STORY_MAX_LANE. */
static void put_busy(vt_json *w, const story_input *in, const story_record *r, const int32_t *step,
                     int32_t n, double *v)
{
    int32_t out = n < STORY_MAX_LANE ? n : STORY_MAX_LANE;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", "busy");
    vt_json_string(w, "what", "workers in calls, not waiting at barriers");
    for (int k = 0; k < 2; k++) {
        for (int32_t c = 0; c < out; c++) {
            int32_t from = (int32_t)((int64_t)c * n / out),
                    to = (int32_t)((int64_t)(c + 1) * n / out);
            double busy = 0, all = 0;
            for (int32_t i = from; i < to; i++) {
                step_lane sum = step_workers(in, &r->step[step[i]]);
                busy += sum.busy_s;
                all += sum.busy_s + sum.wait_s;
            }
            v[c] = k == 0 ? (double)(r->step[step[from]].device.begin_ns - story_origin(r)) * 1e-6
                          : (all > 0 ? busy / all : NAN);
        }
        story_put_column(w, k == 0 ? "begin_ms" : "values", v, out, 4);
    }
    vt_json_string(w, "tag", measured);
    vt_json_close(w);
}

/* A lane without a counter can tell this: the exact work of a step by the step's time, as a share
 * of a roof. */
typedef enum work_lane {
    LANE_MEMORY,
    LANE_FP32,
    LANE_BF16,
    LANE_INT8,
    LANE_FP8,
    WORK_LANES
} work_lane;

static const char *const work_name[WORK_LANES] = {"memory", "fp32", "bf16", "int8", "fp8"};

/* The roofs' shares in one step: share[WORK_LANES]. False: the step cannot be costed. */
static bool step_shares(const story_input *in, const story_record *r, const step_record *s,
                        story_step *plan, double *share)
{
    const double roof[WORK_LANES] = {vt_roofs_bandwidth(&in->roofs), in->roofs.fp32_per_s,
                                     in->roofs.bf16_per_s, in->roofs.int8_per_s,
                                     in->roofs.fp8_per_s};
    double work[WORK_LANES] = {0}, s_s = span_s(s->device);
    if (!(s_s > 0) || !story_bind_step(r, s, plan))
        return false;
    for (int32_t i = 0; i < story_step_program(plan)->n_calls; i++) {
        vt_cost cost, extra;
        if (!story_step_cost(plan, i, &cost, &extra))
            continue;
        work[LANE_MEMORY] += (double)vt_cost_bytes(&cost);
        work[LANE_FP32] += (double)cost.flops.fp32;
        work[roof[LANE_BF16] > 0 ? LANE_BF16 : LANE_FP32] += (double)cost.flops.bf16;
        work[LANE_INT8] += (double)cost.flops.int8;
        work[roof[LANE_FP8] > 0 ? LANE_FP8 : LANE_BF16] += (double)cost.flops.fp8;
    }
    for (int k = 0; k < WORK_LANES; k++)
        share[k] = roof[k] > 0 ? work[k] / s_s / roof[k] : NAN;
    return true;
}

static void put_work_lane(vt_json *w, const char *name, const char *what, const double *begin_ms,
                          const double *v, int32_t n)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", name);
    vt_json_string(w, "what", what);
    story_put_column(w, "begin_ms", begin_ms, n, 4);
    story_put_column(w, "values", v, n, 4);
    vt_json_string(w, "tag", derived);
    vt_json_close(w);
}

/* Memory, and the unit that is nearest to its roof. Where there are more steps than values, one of
 * several stands for them: its neighbours are of the same kind. room[(1 + WORK_LANES) *
 * STORY_MAX_LANE]. */
static void put_work(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                     const int32_t *step, int32_t n, double *room)
{
    int32_t cells = n < STORY_MAX_LANE ? n : STORY_MAX_LANE, known = 0;
    double *begin = room, *lane[WORK_LANES], most[WORK_LANES] = {0};
    work_lane unit = LANE_FP32;
    for (int k = 0; k < WORK_LANES; k++)
        lane[k] = room + (1 + k) * STORY_MAX_LANE;
    for (int32_t c = 0; c < cells; c++) {
        const step_record *s = &r->step[step[(int64_t)c * n / cells]];
        double share[WORK_LANES];
        if (step_is_timed(s) || !step_shares(in, r, s, plan, share))
            continue;
        begin[known] = (double)(s->device.begin_ns - story_origin(r)) * 1e-6;
        for (int k = 0; k < WORK_LANES; k++) {
            lane[k][known] = share[k];
            most[k] = share[k] > most[k] ? share[k] : most[k];
        }
        known++;
    }
    for (int k = LANE_FP32; k < WORK_LANES; k++)
        unit = most[k] > most[unit] ? (work_lane)k : unit;
    if (known == 0)
        return;
    put_work_lane(w, work_name[LANE_MEMORY], "bytes a step must move, of the read roof", begin,
                  lane[LANE_MEMORY], known);
    if (most[unit] > 0)
        put_work_lane(w, work_name[unit], "operations a step must do, of the roof", begin,
                      lane[unit], known);
}

/* room: as put_work's; `step` loses those without calls. */
static vt_status put_lanes(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                           int32_t *step, int32_t n, double *v, vt_err *err)
{
    int32_t known = 0;
    vt_json_open(w, "lanes", '{');
    vt_json_open(w, "items", '[');
    put_work(w, in, r, plan, step, n, v);
    for (int32_t i = 0; i < n; i++) {
        step_lane sum = step_workers(in, &r->step[step[i]]);
        if (sum.busy_s + sum.wait_s > 0)
            step[known++] = step[i];
    }
    if (!story_on_gpu(in) && known > 0)
        put_busy(w, in, r, step, known, v);
    TRY(story_put_pm_items(w, in, r, err));
    TRY(story_put_cta_lane(w, in, r, err));
    vt_json_close(w);
    vt_json_string(w, "why",
                   !story_no_pm(in, r) ? NULL
                   : story_on_gpu(in)
                       ? "what SMs, tensor cores and memory really did is told by the GPU's "
                         "counters over time (tier T2)"
                       : "what the matrix unit and the memory really did is told by hardware "
                         "counters, which are not read yet");
    story_put_sampled(w, in, r);
    vt_json_close(w);
    return VT_OK;
}

/* ---- tiers ---- */

static void put_tier(vt_json *w, const char *name, const char *what, const char *why_not)
{
    vt_json_open(w, name, '{');
    vt_json_string(w, "what", what);
    vt_json_bool(w, "used", !why_not);
    vt_json_string(w, "why", why_not);
    vt_json_close(w);
}

/* Why no call was counted; NULL: some were. */
static const char *why_no_vitals(const story_input *in)
{
    const story_source *g = story_find_source(in, VT_SOURCE_STREAM);
    if (story_is_counted(in))
        return NULL;
    if (g->is.no_vitals)
        return g->is.no_vitals;
    return g->is.vitals ? "no step was left to count" : "--story-counters reads them";
}

static void put_tiers(vt_json *w, const story_input *in, const story_record *r)
{
    unsigned counted = story_counted(r);
    char why[256], slots[256];
    bool events = vt_probe_perf_events(why, sizeof why);
    vt_json_open(w, "tiers", '{');
    put_tier(w, "T0", "clocks, and exact bytes and FLOPs", NULL);
    if (story_on_gpu(in))
        put_tier(w, "T1", "when each kernel and copy ran, by CUPTI", story_no_activity(in));
    else
        put_tier(w, "T1", "hardware events of each worker",
                 counted  ? NULL
                 : events ? "they are allowed here, and no step's are in the recording"
                          : why);
    put_tier(w, "T2", "a GPU's counters over time", story_no_pm(in, r));
    if (story_on_gpu(in))
        put_tier(w, "T3", "a GPU's counters of each call", why_no_vitals(in));
    else
        put_tier(w, "T3", "what became of each worker's slots",
                 story_has_slots(counted)                        ? NULL
                 : vt_probe_cpu_topdown("", slots, sizeof slots) ? "no step's are in the recording"
                                                                 : slots);
    put_tier(w, "T4", "at which lines a GPU's warps wait", story_no_lines(in));
    vt_json_close(w);
}

vt_status story_put_places(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                           vt_err *err)
{
    int32_t *list = vt_arena_alloc(&r->arena, STORY_MAX_STEPS, sizeof *list), left_out;
    double *v = vt_arena_alloc(&r->arena, (1 + WORK_LANES) * STORY_MAX_LANE, sizeof *v);
    if (!list || !v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    TRY(put_lanes(w, in, r, plan, list, story_pick_steps(r, list, &left_out), v, err));
    put_tiers(w, in, r);
    return VT_OK;
}
