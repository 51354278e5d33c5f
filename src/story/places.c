/* "lanes", "tiers" and "ranks" of a story.json (story/places.h, docs/story-format.md). */
#include "story/places.h"

#include <math.h>

#include "base/err.h"
#include "device/probe.h"
#include "story/columns.h"
#include "story/numbers.h"
#include "story/steps.h"

/* ---- lanes ---- */

/* What share of the workers' time went to calls, over the steps whose calls are known; each value
 * is the mean of several steps where there are more than STORY_MAX_LANE. */
static void put_busy(vt_json *w, const story_record *r, const int32_t *step, int32_t n, double *v)
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
                busy += r->step[step[i]].busy_s;
                all += r->step[step[i]].busy_s + r->step[step[i]].wait_s;
            }
            v[c] = k == 0 ? (double)(r->step[step[from]].device.begin_ns - story_origin(r)) * 1e-6
                          : (all > 0 ? busy / all : NAN);
        }
        story_put_column(w, k == 0 ? "begin_ms" : "values", v, out, 4);
    }
    vt_json_string(w, "tag", measured);
    vt_json_close(w);
}

static void put_lanes(vt_json *w, const story_input *in, const story_record *r, int32_t *step,
                      int32_t n, double *v)
{
    int32_t known = 0;
    for (int32_t i = 0; i < n; i++)
        if (r->step[step[i]].busy_s + r->step[step[i]].wait_s > 0)
            step[known++] = step[i];
    vt_json_open(w, "lanes", '{');
    vt_json_open(w, "items", '[');
    if (!story_gpu(in) && known > 0)
        put_busy(w, r, step, known, v);
    vt_json_close(w);
    vt_json_string(w, "why",
                   story_gpu(in) ? "what SMs, tensor cores and memory did over time is told by the "
                                   "GPU's counters, which are not read yet"
                                 : "the matrix unit's and the memory's work over time is told by "
                                   "hardware counters, which are not read yet");
    vt_json_close(w);
}

/* ---- tiers, ranks ---- */

static void put_tier(vt_json *w, const char *name, const char *what, const char *why_not)
{
    vt_json_open(w, name, '{');
    vt_json_string(w, "what", what);
    vt_json_bool(w, "used", !why_not);
    vt_json_string(w, "why", why_not);
    vt_json_close(w);
}

static void put_tiers(vt_json *w, const story_input *in)
{
    char why[256];
    bool events = vt_probe_perf_events(why, sizeof why);
    vt_json_open(w, "tiers", '{');
    put_tier(w, "T0", "clocks, and exact bytes and FLOPs", NULL);
    put_tier(w, "T1", "hardware events of this process",
             events ? "they are allowed here, and the recorder does not read them yet" : why);
    put_tier(w, "T2", "a GPU's counters over time",
             story_gpu(in) ? "CUPTI is not read yet" : "the CPU ran the steps");
    put_tier(w, "T3", "a GPU's counters of each kernel",
             story_gpu(in) ? "CUPTI is not read yet" : "the CPU ran the steps");
    vt_json_close(w);
}

static void put_ranks(vt_json *w)
{
    vt_json_open(w, "ranks", '{');
    vt_json_open(w, "items", '[');
    vt_json_close(w);
    vt_json_string(w, "why", "one device ran all steps");
    vt_json_close(w);
}

vt_status story_put_places(vt_json *w, const story_input *in, story_record *r, vt_err *err)
{
    int32_t *list = vt_arena_alloc(&r->arena, STORY_MAX_STEPS, sizeof *list), left_out;
    double *v = vt_arena_alloc(&r->arena, STORY_MAX_LANE, sizeof *v);
    if (!list || !v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    put_lanes(w, in, r, list, story_pick_steps(r, list, &left_out), v);
    put_tiers(w, in);
    put_ranks(w);
    return VT_OK;
}
