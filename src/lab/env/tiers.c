/* The tiers of a CPU and of a GPU, apart: each is a way to see what the hardware did in a run
 * (env/env.h). The higher the tier, the nearer to the hardware, and the more stands against it.
 * Everything that this program reads is tried out; of the rest it says what the machine allows. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "device/cuda/stamps.h"
#include "device/cupti/activity.h"
#include "device/cupti/pc.h"
#include "device/cupti/pm.h"
#include "device/cupti/ranges.h"
#include "lab/env/env.h"

static void set(lab_env_tier *t, const char *what, bool allowed, bool read, const char *why)
{
    *t = (lab_env_tier){.what = what, .allowed = allowed, .read = read};
    snprintf(t->why, sizeof t->why, "%s", why);
}

/* ---- a CPU's ---- */

/* The events that are counted, and what stands against the others. */
static void cpu_events(const lab_env *e, lab_env_tier *t)
{
    size_t n = 0;
    bool all = true;
    set(t, "hardware events of the workers", e->perf, e->perf, e->perf ? "" : e->perf_why);
    for (int i = 0; i < VT_COUNT_SLOTS && e->perf; i++)
        if (e->counted[i])
            vt_append(t->why, sizeof t->why, &n, "%s%s",
                      n ? ", " : "in every story: ", vt_counter_kinds[i].name);
        else
            all = false;
    for (int i = 0; i < VT_COUNT_SLOTS && e->perf && !all; i++)
        if (!e->counted[i])
            vt_append(t->why, sizeof t->why, &n, "; %s: %s", vt_counter_kinds[i].name,
                      e->counted_why[i]);
}

static void look_at_cpu(lab_env *e)
{
    lab_env_tier *t = e->cpu_tier;
    bool sampled = e->perf;
    set(&t[0], "clocks, and exact bytes and FLOPs of every op", true, true, "in every story");
    cpu_events(e, &t[1]);
    set(&t[2], "bytes over time, by the memory controllers", e->controllers, e->controllers,
        e->uncore);
    set(&t[3], "where the workers' cycles went (top-down slots)", e->slots, e->slots, e->topdown);
    set(&t[4], "samples of the program counter", sampled, false,
        sampled ? "not read: perf record takes them" : e->perf_why);
}

/* ---- a GPU's ---- */

static void stamps(vt_cuda *c, lab_env_tier *t)
{
    vt_err err = {0};
    vt_cuda_lane lane = {.cuda = c};
    err.status = vt_cuda_check(c, c->driver.stream_create(&lane.stream, CU_STREAM_NON_BLOCKING, 0),
                               "making a stream", &err);
    if (err.status == VT_OK) {
        err.status = vt_cuda_stamps_check(&lane, &err);
        c->driver.stream_destroy(lane.stream);
    }
    bool fine = err.status == VT_OK;
    set(t, "when every kernel began and ended, inside its graph", fine, fine,
        fine ? "stamped by the kernels themselves, in every story" : err.message);
    if (!fine) /* the slow way is left */
        snprintf(t->why, sizeof t->why, "%.400s; kernels are timed in steps that run call by call",
                 err.message);
}

/* Names the vitals, and what stands against those that are missing. */
static void tell_vitals(const vt_vital_sets *sets, lab_env_tier *t)
{
    size_t n = 0;
    int32_t stalls = 0;
    const vt_vital_set *first = &sets->set[0];
    vt_append(t->why, sizeof t->why, &n, "--story-counters counts, in one pass: ");
    for (int32_t i = 0; i < first->n; i++)
        vt_append(t->why, sizeof t->why, &n, "%s%s", i ? ", " : "", vt_vitals[first->is[i]].key);
    for (int i = 0; i < VT_STALLS; i++)
        stalls += !sets->why_not[VT_VITAL_STALLED + i][0];
    if (sets->n > 1)
        vt_append(
            t->why, sizeof t->why, &n,
            "; and in turns, in %d sets of one pass: %d stall reasons of %d, loads and spills",
            sets->n, stalls, VT_STALLS);
    for (int i = 0; i < VT_VITALS; i++)
        if (sets->why_not[i][0])
            vt_append(t->why, sizeof t->why, &n, "; not %s: %s", vt_vitals[i].key,
                      sets->why_not[i]);
}

/* Tries sampling, and names what is sampled and what stands against the rest. */
static void over_time(const vt_cuda *c, lab_env_tier *t)
{
    size_t n = 0;
    vt_err err = {0};
    vt_pm *pm = NULL;
    if (vt_pm_open(c, &pm, &err) != VT_OK) {
        snprintf(t->why, sizeof t->why, "%s", err.message);
        return;
    }
    const vt_pm_set *s = vt_pm_sampled(pm);
    t->allowed = t->read = true;
    vt_append(t->why, sizeof t->why, &n, "--story-lanes samples, in one pass: ");
    for (int32_t i = 0; i < s->n; i++)
        vt_append(t->why, sizeof t->why, &n, "%s%s", i ? ", " : "", vt_pm_rows[s->is[i]].key);
    for (int i = 0; i < VT_PM_LANES; i++)
        if (s->why_not[i][0])
            vt_append(t->why, sizeof t->why, &n, "; not %s: %s", vt_pm_rows[i].key, s->why_not[i]);
    vt_pm_close(pm);
}

/* Tries sampling the program counter. */
static void by_line(const vt_cuda *c, lab_env_tier *t)
{
    vt_err err = {0};
    vt_pc *pc = NULL;
    if (vt_pc_open(c, &pc, &err) == VT_OK && vt_pc_begin(pc, &err) == VT_OK)
        vt_pc_end(pc, NULL, NULL, NULL, &err);
    vt_pc_close(pc);
    t->allowed = t->read = err.status == VT_OK;
    snprintf(t->why, sizeof t->why, "%s",
             t->read
                 ? "--story-lines samples decode steps, and bench kernels --lines an op's kernels, "
                   "line by line"
                 : err.message);
}

static void records_ended(void *user, const vt_activity_totals *totals, const vt_err *why)
{
    (void)totals;
    if (why)
        *(vt_err *)user = *why;
}

/* Tries recording. */
static void records(const vt_cuda *c, lab_env_tier *t)
{
    vt_err err = {0};
    vt_activity *a = NULL;
    const vt_activity_reader reader = {.ended = records_ended, .user = &err};
    if (vt_activity_open(c, 0, 1, &a, &err) == VT_OK &&
        vt_activity_begin(a, &reader, &err) == VT_OK)
        vt_activity_end(a);
    vt_activity_close(a);
    t->allowed = t->read = err.status == VT_OK;
    snprintf(t->why, sizeof t->why, "%s",
             t->read ? "--story-activity has them of some steps, libraries' kernels among them"
                     : err.message);
}

static void ranges_of(const vt_cuda *c, lab_env_tier *t)
{
    vt_err err = {0};
    vt_ranges *ranges = NULL;
    if (vt_ranges_open(c, 1, &ranges, &err) == VT_OK) {
        t->allowed = t->read = true;
        tell_vitals(vt_ranges_sets(ranges), t);
        vt_ranges_close(ranges);
    } else {
        snprintf(t->why, sizeof t->why, "%s", err.message);
    }
}

static void counters(vt_cuda *c, lab_env_tier *t)
{
    vt_err err = {0};
    vt_cupti cupti;
    uint8_t *image = NULL;
    size_t bytes;
    bool there = vt_cupti_open(&cupti, &err) == VT_OK;
    char forbidden[512] = "";
    if (!there)
        snprintf(forbidden, sizeof forbidden, "%s", err.message);
    else if (vt_cupti_availability(&cupti, c, &image, &bytes, &err) != VT_OK)
        snprintf(forbidden, sizeof forbidden, "%s", err.message);
    free(image);
    set(&t[1], "records of every launch and copy", false, false, forbidden);
    set(&t[2], "counters over time", false, false, forbidden);
    set(&t[3], "counters of each call", false, false, forbidden);
    set(&t[4], "stall reasons, by samples of the program counter", false, false, forbidden);
    if (there) {
        over_time(c, &t[2]);
        by_line(c, &t[4]);
    }
    if (!forbidden[0])
        ranges_of(c, &t[3]);
    if (there)
        records(c, &t[1]);
}

void lab_env_gpu_tiers(lab_env *e, vt_cuda *c)
{
    vt_err err = {0};
    if (vt_cuda_enter(c, &err) != VT_OK)
        return;
    stamps(c, &e->gpu_tier[0]);
    counters(c, e->gpu_tier);
}

void lab_env_cpu_tiers(lab_env *e)
{
    static const char *const what[LAB_ENV_TIERS] = {
        "when every kernel began and ended", "records of every launch and copy",
        "counters over time", "counters of each call",
        "stall reasons, by samples of the program counter"};
    look_at_cpu(e);
    for (int i = 0; i < LAB_ENV_TIERS; i++) /* those that no GPU was asked about */
        if (!e->gpu_tier[i].what)
            set(&e->gpu_tier[i], what[i], false, false, "no model can run on a GPU here");
}

/* ---- told ---- */

static void put_tiers(vt_buf *b, const vt_term *term, const char *where, const lab_env_tier *tier)
{
    for (int i = 0; i < LAB_ENV_TIERS; i++) {
        char name[16];
        vt_buf text = {0};
        snprintf(name, sizeof name, "%s T%d", where, i);
        vt_buf_printf(&text, "%s: %s%s", tier[i].what, tier[i].allowed ? "" : "no: ", tier[i].why);
        lab_env_line_of(b, term, name, &text);
    }
}

void lab_env_put_tiers(vt_buf *b, const vt_term *term, const lab_env *e)
{
    put_tiers(b, term, "CPU", e->cpu_tier);
    put_tiers(b, term, "GPU", e->gpu_tier);
}

static void write_tiers(vt_json *w, const char *where, const lab_env_tier *tier)
{
    vt_json_open(w, where, '{');
    for (int i = 0; i < LAB_ENV_TIERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "T%d", i);
        vt_json_open(w, name, '{');
        vt_json_string(w, "what", tier[i].what);
        vt_json_bool(w, "allowed", tier[i].allowed);
        vt_json_bool(w, "read", tier[i].read);
        vt_json_string(w, "why", tier[i].why);
        vt_json_close(w);
    }
    vt_json_close(w);
}

void lab_env_write_tiers(vt_json *w, const lab_env *e)
{
    vt_json_open(w, "tiers", '{');
    write_tiers(w, "cpu", e->cpu_tier);
    write_tiers(w, "gpu", e->gpu_tier);
    vt_json_close(w);
}
