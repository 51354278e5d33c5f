/* CPU workers of a story (workers.h).
 *
 *   step 41   worker 0 | on a CPU ===========|....|    busy: in calls; wait: at barriers
 *             worker 1 | on a CPU ====|--|====|..|     off a CPU (-): ready and none was free (run
 *                                                      delay), or asleep at a barrier
 *
 * Busy and wait come from the spans of the recorded steps, the rest from the operating system's
 * readings about all steps. A reading that speaks of several steps counts by the share of their
 * time that belongs to the story. */
#include "story/record/workers.h"

#include <math.h>

#include "story/record/numbers.h"

double step_count(const step_record *s, vt_counter c)
{
    return s->use.known && s->use.counted >> c & 1 ? s->use.count[c] : NAN;
}

unsigned story_counted(const story_record *r)
{
    unsigned counted = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen && r->step[i].use.known)
            counted |= r->step[i].use.counted;
    return counted;
}

/* ---- workers ---- */

/* The device time of the chosen steps that a reading speaks of, and of all of them in *all_s. */
static double spoken_of(const story_record *r, const vt_use_event *e, double *all_s)
{
    double chosen_s = 0;
    *all_s = 0;
    for (uint64_t k = 0; k < e->n_steps && k < e->step; k++) {
        const step_record *s = story_find_step(r, e->step - k);
        double device_s = s ? span_s(s->device) : 0;
        *all_s += device_s;
        chosen_s += s && s->chosen ? device_s : 0;
    }
    return chosen_s;
}

static void add_reading(const story_record *r, const vt_use_event *e, worker_use *to)
{
    double all_s, chosen_s = spoken_of(r, e, &all_s);
    if (!(chosen_s > 0))
        return;
    double part = chosen_s / all_s;
    to->device_s += chosen_s;
    to->cpu_s += part * (double)e->cpu_ns * 1e-9;
    to->delay_s += part * (double)e->delay_ns * 1e-9;
    to->switches += part * (double)e->switches;
    to->minor_faults += part * (double)e->minor_faults;
    to->major_faults += part * (double)e->major_faults;
    to->counted &= e->counted;
    for (int c = 0; c < VT_COUNTERS; c++)
        to->count[c] += part * (double)e->count[c];
    if (!e->placed)
        return;
    to->n_moves += to->cpu >= 0 && to->cpu != (int32_t)e->cpu;
    to->cpu = (int32_t)e->cpu;
    to->node = (int32_t)e->node;
}

static const char *const counter_key[VT_COUNT_SLOTS] = {[VT_COUNT_CYCLES] = "cycles",
                                                        [VT_COUNT_INSTRUCTIONS] = "instructions",
                                                        [VT_COUNT_MISSES] = "cache_misses",
                                                        [VT_COUNT_AMX] = "amx_busy"};

bool story_has_slots(unsigned counted)
{
    const unsigned all = (1u << VT_COUNTERS) - (1u << VT_COUNT_SLOTS);
    return (counted & all) == all;
}

/* Writes what became of the slots, as shares of them; null where they were not counted. */
static void put_topdown(vt_json *w, const double count[VT_COUNTERS], unsigned counted)
{
    static const struct {
        vt_counter is;
        const char *key;
    } part[] = {{VT_COUNT_RETIRING, "retiring"},
                {VT_COUNT_BAD, "bad_speculation"},
                {VT_COUNT_FRONT, "front_end"},
                {VT_COUNT_BACK, "back_end"}};
    if (!story_has_slots(counted) || !(count[VT_COUNT_SLOTS] > 0)) {
        vt_json_null(w, "topdown");
        return;
    }
    vt_json_open(w, "topdown", '{');
    vt_json_tagged(w, "slots", count[VT_COUNT_SLOTS], 0, measured);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        vt_json_tagged(w, part[i].key, count[part[i].is] / count[VT_COUNT_SLOTS], 4, measured);
    vt_json_close(w);
}

static void put_place(vt_json *w, const char *key, int32_t v)
{
    if (v < 0)
        vt_json_null(w, key);
    else
        vt_json_int(w, key, v);
}

worker_use story_worker_use(const story_record *r, const story_source *s)
{
    worker_use u = {.counted = (1u << VT_COUNTERS) - 1, .cpu = -1, .node = -1};
    for (uint64_t i = 0; i < s->n_uses; i++)
        add_reading(r, &s->use[i], &u);
    return u;
}

/* The system's part of a worker's object. */
static void put_use(vt_json *w, const story_record *r, const story_source *s)
{
    worker_use u = story_worker_use(r, s);
    bool read = u.device_s > 0;
    put_ms(w, "cpu_ms", read ? u.cpu_s : NAN, measured);
    put_ms(w, "run_delay_ms", read ? u.delay_s : NAN, measured);
    vt_json_tagged(w, "off_cpu", read ? fmax(0, 1 - u.cpu_s / u.device_s) : NAN, 4, derived);
    vt_json_tagged(w, "involuntary_switches", read ? u.switches : NAN, 0, measured);
    vt_json_tagged(w, "minor_faults", read ? u.minor_faults : NAN, 0, measured);
    vt_json_tagged(w, "major_faults", read ? u.major_faults : NAN, 0, measured);
    for (int c = 0; c < VT_COUNT_SLOTS; c++)
        vt_json_tagged(w, counter_key[c], read && u.counted >> c & 1 ? u.count[c] : NAN, 0,
                       measured);
    put_topdown(w, u.count, read ? u.counted : 0);
    put_place(w, "cpu", u.cpu);
    put_place(w, "node", u.node);
    vt_json_int(w, "moves", u.n_moves);
}

void story_put_threads(vt_json *w, const story_input *in, const story_record *r)
{
    int32_t worker = 0;
    vt_json_open(w, "threads", '[');
    for (int32_t k = 0; k < in->n_sources; k++) {
        double all = r->sum[k].busy_s + r->sum[k].wait_s;
        if (in->source[k].is.kind != VT_SOURCE_WORKER)
            continue;
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "worker", worker++);
        vt_json_string(w, "name", in->source[k].is.name);
        put_ms(w, "busy_ms", r->sum[k].busy_s, measured);
        put_ms(w, "wait_ms", r->sum[k].wait_s, measured);
        vt_json_tagged(w, "busy", all > 0 ? r->sum[k].busy_s / all : NAN, 4, derived);
        put_us(w, "wait_us_a_step", r->n_worked ? r->sum[k].wait_s / r->n_worked : NAN, derived);
        put_use(w, r, &in->source[k]);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* ---- hardware events of a phase ---- */

void story_put_counters(vt_json *w, const story_input *in, const story_record *r, bool prefill)
{
    double sum[VT_COUNTERS] = {0}, cpu_s = 0;
    unsigned counted = story_on_gpu(in) ? 0 : (1u << VT_COUNTERS) - 1;
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->typical || s->prefill != prefill || !s->use.known || s->use.counted == 0)
            continue;
        counted &= s->use.counted;
        cpu_s += s->use.cpu_s;
        for (int c = 0; c < VT_COUNTERS; c++)
            sum[c] += s->use.count[c];
        n++;
    }
    if (n == 0 || counted == 0) {
        vt_json_null(w, "counters");
        return;
    }
    for (int c = 0; c < VT_COUNTERS; c++)
        sum[c] = counted >> c & 1 ? sum[c] : NAN;
    vt_json_open(w, "counters", '{');
    vt_json_int(w, "steps", n);
    for (int c = 0; c < VT_COUNTERS; c++)
        sum[c] /= n;
    for (int c = 0; c < VT_COUNT_SLOTS; c++)
        vt_json_tagged(w, counter_key[c], sum[c], 0, measured);
    double cycles = sum[VT_COUNT_CYCLES] > 0 ? sum[VT_COUNT_CYCLES] : NAN;
    vt_json_tagged(w, "ipc", sum[VT_COUNT_INSTRUCTIONS] / cycles, 3, derived);
    vt_json_tagged(w, "amx", sum[VT_COUNT_AMX] / cycles, 4, derived);
    vt_json_tagged(w, "clock_hz", cpu_s > 0 ? cycles * n / cpu_s : NAN, 0, derived);
    put_topdown(w, sum, counted);
    vt_json_close(w);
}

/* ---- who came last ---- */

void story_put_imbalance(vt_json *w, const story_input *in, const op_sum *o)
{
    int32_t most = -1, worker = 0, n_late = 0;
    double share = o->n_waits > 0 && o->s > 0 && !story_on_gpu(in) ? o->wait_s / o->s : NAN;
    vt_json_tagged(w, "imbalance", share, 4, derived);
    for (int32_t k = 0; k < in->n_sources && o->late; k++) {
        if (in->source[k].is.kind != VT_SOURCE_WORKER)
            continue;
        if (o->late[k] > n_late) {
            n_late = o->late[k];
            most = worker;
        }
        worker++;
    }
    if (most < 0) {
        vt_json_null(w, "straggler");
        return;
    }
    vt_json_open(w, "straggler", '{');
    vt_json_int(w, "worker", most);
    vt_json_int(w, "calls", n_late);
    vt_json_int(w, "of", o->n_waits);
    vt_json_close(w);
}
