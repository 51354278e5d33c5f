/* Finds what the machine withheld (machine.h).
 *
 *   reading k of worker w:   |-- step 41 --|-- 42 --|-- 43 --|     run delay d, CPU time c
 *
 * A reading speaks of one step, or of several short ones. Its run delay is spread over them by
 * their length. A step is disturbed where more than 2 % of it was run delay of one worker: the
 * others then waited for that worker at the next barrier. A GPU's step is disturbed where the clock
 * sampled nearest to it was more than 3 % below the highest of the story's. */
#include "story/record/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/term/figure.h"
#include "base/term/term.h"
#include "device/nvml.h"
#include "story/record/numbers.h"

static const double delayed_share = 0.02;
/* Waking a worker that sleeps counts as run delay, too: a few microseconds on a quiet machine. */
static const double least_delay_s = 20e-6;
static const double clock_fell = 0.03;

/* ---- run delay ---- */

/* The first step of the record with this id or a later one. */
static int32_t first_from(const story_record *r, uint64_t id)
{
    int32_t low = 0, high = r->n_steps;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (r->step[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void spread(story_record *r, const vt_use_event *e)
{
    uint64_t last = e->step, from = last - (e->n_steps < last ? e->n_steps : last) + 1;
    int32_t begin = first_from(r, from), end = begin;
    double device_s = 0, delay_s = (double)e->delay_ns * 1e-9;
    for (; end < r->n_steps && r->step[end].id <= last; end++)
        device_s += span_s(r->step[end].device);
    if (device_s <= 0)
        return;
    bool disturbed = delay_s > delayed_share * device_s && delay_s > least_delay_s;
    for (int32_t i = begin; i < end; i++) {
        step_use *u = &r->step[i].use;
        double part = span_s(r->step[i].device) / device_s;
        u->counted = u->known ? u->counted & e->counted : e->counted;
        for (int c = 0; c < VT_COUNTERS; c++)
            u->count[c] += (double)e->count[c] * part;
        u->known = true;
        u->disturbed = u->disturbed || disturbed;
        u->delay_s = fmax(u->delay_s, delay_s * part);
        u->delays_s += delay_s * part;
        u->cpu_s += (double)e->cpu_ns * 1e-9 * part;
    }
    step_use *u = &r->step[begin].use; /* counts are not divided: the first step has them */
    u->switches += (int32_t)e->switches;
    u->minor_faults += (int32_t)e->minor_faults;
    u->major_faults += (int32_t)e->major_faults;
}

/* ---- clocks ---- */

/* Gives each step the clock that was sampled nearest to its middle. */
static void place_clocks(const story_source *gpu, story_record *r)
{
    uint64_t at = 0;
    for (int32_t i = 0; i < r->n_steps && gpu->n_samples > 0; i++) {
        const span *d = &r->step[i].device;
        int64_t middle = d->begin_ns + (d->end_ns - d->begin_ns) / 2;
        while (at + 1 < gpu->n_samples &&
               llabs(gpu->sample[at + 1].at_ns - middle) <= llabs(gpu->sample[at].at_ns - middle))
            at++;
        if (gpu->sample[at].sm_mhz > 0)
            r->step[i].use.sm_mhz = gpu->sample[at].sm_mhz;
    }
}

static void judge_clocks(story_record *r)
{
    int32_t most = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen && r->step[i].use.sm_mhz > most)
            most = r->step[i].use.sm_mhz;
    for (int32_t i = 0; i < r->n_steps; i++) {
        step_use *u = &r->step[i].use;
        u->known = u->known || u->sm_mhz > 0;
        u->disturbed = u->disturbed || (u->sm_mhz > 0 && u->sm_mhz < (1 - clock_fell) * most);
    }
}

void story_read_use(const story_input *in, story_record *r)
{
    for (int32_t k = 0; k < in->n_sources; k++) {
        const story_source *from = &in->source[k];
        for (uint64_t i = 0; i < from->n_uses; i++)
            spread(r, &from->use[i]);
        if (from->is.kind == VT_SOURCE_STREAM)
            place_clocks(from, r);
    }
    judge_clocks(r);
}

/* ---- sums ---- */

/* An engine reads its energy counter more often than the rest: such a sample says nothing of the
 * machine's load. */
static bool is_whole(const story_source *s, uint64_t i)
{
    return s->is.kind != VT_SOURCE_ENGINE || s->sample[i].pressure_us >= 0 ||
           s->sample[i].ticks >= 0;
}

/* The last whole sample at or before `at`, or the first one; NULL: there is none. */
static const vt_machine_event *sample_before(const story_source *s, int64_t at)
{
    const vt_machine_event *found = NULL;
    for (uint64_t i = 0; i < s->n_samples && (!found || s->sample[i].at_ns <= at); i++)
        if (is_whole(s, i))
            found = &s->sample[i];
    return found;
}

/* The first whole sample at or after `at`, or the last one. */
static const vt_machine_event *sample_after(const story_source *s, int64_t at)
{
    const vt_machine_event *found = NULL;
    for (uint64_t i = 0; i < s->n_samples && !(found && found->at_ns >= at); i++)
        if (is_whole(s, i))
            found = &s->sample[i];
    return found;
}

static void sum_host(const story_source *s, int64_t begin, int64_t end, story_machine *m)
{
    const vt_machine_event *a = sample_before(s, begin), *b = sample_after(s, end);
    if (!a || !b || b->at_ns <= a->at_ns)
        return;
    if (a->pressure_us >= 0 && b->pressure_us >= 0)
        m->pressure = (double)(b->pressure_us - a->pressure_us) * 1e3 /
                      (double)(b->at_ns - a->at_ns);
    if (a->steal_ticks >= 0 && b->ticks > a->ticks)
        m->steal = (double)(b->steal_ticks - a->steal_ticks) / (double)(b->ticks - a->ticks);
}

/* Tells what memory controllers moved between the samples around the steps. These may be a second
 * apart, so bytes and time are both told. */
static void sum_controllers(const story_source *s, int64_t begin, int64_t end, story_machine *m)
{
    const vt_machine_event *a = NULL, *b = NULL;
    for (uint64_t i = 0; i < s->n_samples; i++) {
        const vt_machine_event *e = &s->sample[i];
        if (e->controllers <= 0)
            continue;
        if (!a || e->at_ns <= begin)
            a = e;
        if (!b || b->at_ns < end)
            b = e;
    }
    if (!a || b->at_ns <= a->at_ns || b->read_bytes < a->read_bytes ||
        b->written_bytes < a->written_bytes)
        return;
    m->controllers = a->controllers;
    m->controllers_s = (double)(b->at_ns - a->at_ns) * 1e-9;
    m->controllers_read = (double)(b->read_bytes - a->read_bytes);
    m->controllers_written = (double)(b->written_bytes - a->written_bytes);
}

static void sum_gpu(const story_source *s, int64_t begin, int64_t end, story_machine *m)
{
    const vt_machine_event *a = sample_before(s, begin), *b = sample_after(s, end);
    double power_mw = 0;
    int32_t n_power = 0;
    for (const vt_machine_event *e = a; e && e <= b; e++) {
        if (e->sm_mhz > 0 && (m->mhz_least == 0 || e->sm_mhz < m->mhz_least))
            m->mhz_least = e->sm_mhz;
        m->mhz_most = e->sm_mhz > m->mhz_most ? e->sm_mhz : m->mhz_most;
        if (e->throttle >= 0)
            m->throttle = (m->throttle < 0 ? 0 : m->throttle) | e->throttle;
        if (e->others_percent > m->others_percent)
            m->others_percent = e->others_percent;
        n_power += e->power_mw >= 0;
        power_mw += e->power_mw >= 0 ? e->power_mw : 0;
        m->n_samples++;
    }
    if (n_power) /* a sum over the GPUs */
        m->power_w = (isnan(m->power_w) ? 0 : m->power_w) + power_mw * 1e-3 / n_power;
    if (a && b > a && a->energy_mj >= 0 && b->energy_mj >= a->energy_mj)
        m->energy_j = (isnan(m->energy_j) ? 0 : m->energy_j) +
                      (double)(b->energy_mj - a->energy_mj) * 1e-3;
}

void story_sum_machine(const story_input *in, const story_record *r, story_machine *out)
{
    story_machine m = {.withheld = NAN,
                       .pressure = NAN,
                       .steal = NAN,
                       .throttle = -1,
                       .power_w = NAN,
                       .energy_j = NAN,
                       .others_percent = -1};
    int64_t begin = 0, end = 0;
    int32_t mhz = 0;
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen && r->step[i].use.sm_mhz > mhz)
            mhz = r->step[i].use.sm_mhz;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen)
            continue;
        begin = m.n_steps++ == 0 ? s->device.begin_ns : begin;
        end = s->device.end_ns;
        m.n_known += s->use.known;
        m.n_disturbed += s->use.disturbed;
        m.n_slow += s->use.sm_mhz > 0 && s->use.sm_mhz < (1 - clock_fell) * mhz;
        m.delay_s += s->use.delays_s;
        m.cpu_s += s->use.cpu_s;
        m.switches += s->use.switches;
        m.minor_faults += s->use.minor_faults;
        m.major_faults += s->use.major_faults;
        if (s->use.delay_s > m.longest_s) {
            m.longest_s = s->use.delay_s;
            m.longest_step = s->id;
        }
    }
    if (m.delay_s + m.cpu_s > 0)
        m.withheld = m.delay_s / (m.delay_s + m.cpu_s);
    for (int32_t k = 0; k < in->n_sources && m.n_steps; k++) {
        if (in->source[k].is.kind == VT_SOURCE_ENGINE) {
            sum_host(&in->source[k], begin, end, &m);
            sum_controllers(&in->source[k], begin, end, &m);
        } else if (in->source[k].is.kind == VT_SOURCE_STREAM) {
            sum_gpu(&in->source[k], begin, end, &m);
        }
    }
    story_find_energy(in, r, &m.energy);
    *out = m;
}

bool story_too_few(int32_t n_steps, int32_t n_disturbed)
{
    return n_disturbed > 0 && n_steps - n_disturbed < STORY_ENOUGH_STEPS;
}

/* ---- telling ---- */

/* "72 % of the CPU time asked for", "its clocks in 40 of 64 steps". */
static void put_what(vt_buf *b, const story_machine *m)
{
    bool cpu = m->withheld > 0 && m->n_disturbed > m->n_slow;
    if (cpu)
        vt_buf_printf(b, "%.*f %% of the CPU time asked for", m->withheld < 0.1 ? 1 : 0,
                      100 * m->withheld);
    if (m->n_slow)
        vt_buf_printf(b, "%sits clocks in %d of %d steps (%d of %d MHz at least)",
                      cpu ? " and " : "", m->n_slow, m->n_steps, m->mhz_least, m->mhz_most);
}

void story_withheld(vt_buf *b, const story_machine *m)
{
    if (!story_too_few(m->n_steps, m->n_disturbed))
        return;
    vt_buf_puts(b, "The machine withheld ");
    put_what(b, m);
    vt_buf_printf(
        b, ": %d of %d step%s %s disturbed, so the times below say little about the program. ",
        m->n_disturbed, m->n_steps, m->n_steps == 1 ? "" : "s",
        m->n_disturbed == 1 ? "was" : "were");
}

static void put_clocks(vt_buf *b, const story_machine *m)
{
    if (m->mhz_most > 0 && m->n_slow == 0)
        vt_buf_printf(b, ", clocks steady at %d MHz", m->mhz_most);
}

static void put_text(vt_buf *b, const story_machine *m)
{
    int32_t left = m->n_steps - m->n_disturbed;
    if (m->n_known == 0) {
        vt_buf_puts(b, "not known: neither run delay nor clocks could be read here");
    } else if (m->n_disturbed == 0) {
        vt_buf_puts(b, "quiet: ");
        if (isfinite(m->withheld))
            vt_buf_printf(b, "run delay %.1f %%", 100 * m->withheld);
        else
            vt_buf_puts(b, "no clock fell");
        put_clocks(b, m);
    } else {
        vt_buf_puts(b, "the machine withheld ");
        put_what(b, m);
        if (m->longest_s > 0) {
            vt_text_printf(b, ", one worker for %f s in step %llu", m->longest_s,
                           (unsigned long long)m->longest_step);
        }
        if (story_too_few(m->n_steps, m->n_disturbed))
            vt_buf_printf(b, "; %d of %d steps %s undisturbed, too few to judge ops by", left,
                          m->n_steps, left == 1 ? "was" : "were");
        else
            vt_buf_printf(b, "; op figures below are of the %d undisturbed steps", left);
    }
    if (m->pressure > 0.01)
        vt_buf_printf(b, "; %.0f %% of the time some task of this machine waited for a CPU",
                      100 * fmin(m->pressure, 1));
    if (m->steal > 0.01)
        vt_buf_printf(b, "; %.0f %% stolen by the hypervisor", 100 * m->steal);
    if (m->controllers > 0) {
        vt_text_printf(b, "; %.0f memory controllers read %f B/s and wrote %f B/s for all programs",
                       (double)m->controllers, m->controllers_read / m->controllers_s,
                       m->controllers_written / m->controllers_s);
    }
}

static void put_gpu(vt_json *w, const story_machine *m)
{
    if (m->n_samples == 0) {
        vt_json_null(w, "gpu");
        return;
    }
    vt_json_open(w, "gpu", '{');
    vt_json_int(w, "samples", m->n_samples);
    vt_json_tagged(w, "sm_mhz_least", m->mhz_least ? m->mhz_least : NAN, 0, measured);
    vt_json_tagged(w, "sm_mhz_most", m->mhz_most ? m->mhz_most : NAN, 0, measured);
    vt_json_tagged(w, "power_w", m->power_w, 1, measured);
    vt_json_tagged(w, "energy_j", m->energy_j, 3, measured);
    vt_json_tagged(w, "others_percent", m->others_percent < 0 ? NAN : m->others_percent, 0,
                   measured);
    vt_json_open(w, "clocks_held_by", '[');
    for (int32_t i = 1; m->throttle > 0 && vt_nvml_reason(i); i++) /* 0: idle */
        if (m->throttle >> i & 1)
            vt_json_string(w, NULL, vt_nvml_reason(i));
    vt_json_close(w);
    vt_json_close(w);
}

static void put_controllers(vt_json *w, const story_machine *m)
{
    if (m->controllers <= 0) {
        vt_json_null(w, "memory_controllers");
        return;
    }
    vt_json_open(w, "memory_controllers", '{');
    vt_json_int(w, "count", m->controllers);
    put_ms(w, "ms", m->controllers_s, measured);
    vt_json_tagged(w, "read_bytes", m->controllers_read, 0, measured);
    vt_json_tagged(w, "written_bytes", m->controllers_written, 0, measured);
    vt_json_tagged(w, "read_bytes_per_s", m->controllers_read / m->controllers_s, 0, derived);
    vt_json_tagged(w, "written_bytes_per_s", m->controllers_written / m->controllers_s, 0, derived);
    vt_json_close(w);
}

void story_put_machine(vt_json *w, const story_machine *m)
{
    vt_buf text = {0};
    bool read = m->delay_s + m->cpu_s > 0;
    put_text(&text, m);
    vt_json_open(w, "machine", '{');
    vt_json_string(w, "state",
                   m->n_known == 0      ? "unknown"
                   : m->n_disturbed > 0 ? "disturbed"
                                        : "quiet");
    vt_json_string(w, "text", text.data ? text.data : "");
    vt_json_int(w, "steps", m->n_steps);
    vt_json_int(w, "known_steps", m->n_known);
    vt_json_int(w, "disturbed_steps", m->n_disturbed);
    put_ms(w, "run_delay_ms", read ? m->delay_s : NAN, measured);
    put_ms(w, "cpu_ms", read ? m->cpu_s : NAN, measured);
    vt_json_tagged(w, "withheld", m->withheld, 5, derived);
    put_ms(w, "longest_delay_ms", read ? m->longest_s : NAN, measured);
    vt_json_int(w, "longest_delay_step", (int64_t)m->longest_step);
    vt_json_int(w, "involuntary_switches", m->switches);
    vt_json_int(w, "minor_faults", m->minor_faults);
    vt_json_int(w, "major_faults", m->major_faults);
    vt_json_tagged(w, "pressure", m->pressure, 4, measured);
    vt_json_tagged(w, "steal", m->steal, 4, measured);
    put_controllers(w, m);
    put_gpu(w, m);
    story_put_energy(w, &m->energy);
    vt_json_close(w);
    vt_buf_release(&text);
}
