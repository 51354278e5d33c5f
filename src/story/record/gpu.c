/* The GPU's part of a story (gpu.h, docs/story-format.md). */
#include "story/record/gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/term/term.h"
#include "device/cuda/occupancy.h"
#include "story/record/numbers.h"

/* A value below 0 is not known. */
static void put_known(vt_json *w, const char *key, double v, int digits)
{
    vt_json_tagged(w, key, v < 0 ? NAN : v, digits, measured);
}

/* Clocks tell why a roof of another day is not reached. */
static void put_state(vt_json *w, const story_source *g)
{
    const vt_gpu_state *s = &g->state;
    if (!g->has_state) {
        vt_json_null(w, "state");
        return;
    }
    vt_json_open(w, "state", '{');
    put_known(w, "sm_mhz", s->sm_mhz, 0);
    put_known(w, "sm_max_mhz", s->sm_max_mhz, 0);
    put_known(w, "memory_mhz", s->memory_mhz, 0);
    put_known(w, "memory_max_mhz", s->memory_max_mhz, 0);
    put_known(w, "power_w", s->power_w, 1);
    put_known(w, "power_limit_w", s->power_limit_w, 1);
    put_known(w, "temperature_c", s->temperature_c, 0);
    vt_json_open(w, "clocks_held_by", '[');
    for (int32_t i = 1; s->throttle > 0 && vt_nvml_reason(i); i++) /* 0: idle, as it is now */
        if (s->throttle >> i & 1)
            vt_json_string(w, NULL, vt_nvml_reason(i));
    vt_json_close(w);
    vt_json_close(w);
}

void story_gpu_engine(vt_json *w, const story_source *g, const vt_roofs *roofs)
{
    if (!g) {
        vt_json_null(w, "gpu");
        return;
    }
    const vt_device_facts *d = &g->is.device;
    vt_json_open(w, "gpu", '{');
    vt_json_int(w, "ordinal", d->ordinal);
    vt_json_string(w, "name", roofs->name);
    vt_json_string(w, "arch", d->level);
    vt_json_int(w, "level", d->kernel_level);
    vt_json_int(w, "multiprocessors", d->sm_count);
    vt_json_int(w, "memory_bytes", d->memory_bytes);
    vt_json_int(w, "l2_bytes", d->l2_bytes);
    vt_json_int(w, "driver_version", d->driver_version);
    vt_json_int(w, "kernels_compiled", g->is.n_kernels);
    put_us(w, "clock_error_us", g->is.clock_error_ns * 1e-9, measured);
    put_state(w, g);
    vt_json_close(w);
}

void story_gpu_how(const phase *p, const phase_lane *g, char *out, size_t size)
{
    const char *unit = strcmp(p->name, "decode") == 0 ? "sequence" : "token";
    double used = g && g->n_steps ? g->tokens / g->n_steps : 0;
    /* where each step ran call by call, none was left to its graph */
    const char *in = g && (g->n_whole || g->n_stamped) ? "in " : "call by call; unwatched in ";
    if (!g)
        *out = '\0';
    else if (g->n_steps == 0)
        snprintf(out, size, "not recorded");
    else if (g->graph_most == 0)
        snprintf(out, size, "launched kernel by kernel");
    else if (g->graph_least == g->graph_most)
        snprintf(out, size, "%sthe graph for %d %s%s, %.4g used", in, g->graph_most, unit,
                 g->graph_most == 1 ? "" : "s", used);
    else
        snprintf(out, size, "%sgraphs for %d to %d %ss, %.4g used", in, g->graph_least,
                 g->graph_most, unit, used);
}

void story_gpu_phase(vt_json *w, const phase *p, const phase_lane *g)
{
    char how[96];
    if (!g) {
        vt_json_null(w, "gpu");
        return;
    }
    double n = g->n_steps ? g->n_steps : NAN, whole = g->n_whole ? g->n_whole : NAN;
    double timed = g->n_timed ? g->n_timed : NAN,
           untimed = g->n_steps > g->n_timed ? g->n_steps - g->n_timed : NAN;
    story_gpu_how(p, g, how, sizeof how);
    vt_json_open(w, "gpu", '{');
    vt_json_string(w, "how", how);
    vt_json_int(w, "graph_tokens_least", g->graph_least);
    vt_json_int(w, "graph_tokens_most", g->graph_most);
    vt_json_tagged(w, "tokens", g->tokens / n, 3, measured);
    vt_json_tagged(w, "kernels_per_step", g->kernels / n, 2, measured);
    vt_json_tagged(w, "host_to_device_bytes", g->bytes_in / n, 0, measured);
    put_us(w, "idle_us", g->n_idle ? g->idle_s / g->n_idle : NAN, measured);
    if (g->n_stamped > 0)
        vt_json_string(w, "timed_by", "stamps");
    vt_json_int(w, "whole_steps", g->n_steps - g->n_timed);
    put_us(w, "whole_step_us", g->whole_s / whole, measured);
    vt_json_tagged(w, "slower",
                   g->n_whole && p->n_timed ? p->timed_s / p->n_timed / phase_step_s(p) : NAN, 3,
                   derived);
    put_us(w, "prepare_timed_us", g->prepare_timed_s / timed, measured);
    put_us(w, "prepare_whole_us", g->prepare_whole_s / untimed, measured);
    vt_json_close(w);
}

bool story_gpu_cta_more(const vt_kernel_facts *k, const vt_occupancy *o, char out[STORY_CTA_MORE])
{
    char text[160];
    size_t n = 0;
    if (o->fewer_registers > 0)
        vt_append(text, sizeof text, &n, "%d registers a thread in place of %d", o->fewer_registers,
                  k->registers);
    if (o->less_shared >= 0)
        vt_append(text, sizeof text, &n, "%s%lld bytes of shared memory in place of %lld",
                  n ? ", or " : "", (long long)o->less_shared,
                  (long long)k->shared_bytes + k->dynamic_shared);
    if (n > 0)
        snprintf(out, STORY_CTA_MORE, "an SM would hold %d CTA%s with %s", o->ctas + 1,
                 vt_text_s(o->ctas + 1), text);
    return n > 0;
}

bool story_gpu_occupancy(const story_source *g, const vt_kernel_facts *k,
                         vt_occupancy_input *launch, vt_occupancy *out)
{
    *launch = (vt_occupancy_input){.cc = g->is.device.capability,
                                   .threads = (int32_t)k->threads,
                                   .registers = k->registers,
                                   .shared_bytes = (int64_t)k->shared_bytes + k->dynamic_shared,
                                   .grid = (int64_t)k->grid[0] * k->grid[1] * k->grid[2],
                                   .sm_count = g->is.device.sm_count};
    return k->threads > 0 && vt_occupancy_of(launch, out) && out->ctas > 0;
}

/* The kernel's newest launch, and what an SM makes of it. */
static void put_launch(vt_json *w, const story_source *g, const vt_kernel_facts *k)
{
    vt_occupancy o;
    vt_occupancy_input in;
    char more[STORY_CTA_MORE];
    if (k->threads == 0) {
        vt_json_null(w, "launch");
        return;
    }
    vt_json_open(w, "launch", '{');
    vt_json_open(w, "grid", '[');
    for (int i = 0; i < 3; i++)
        vt_json_int(w, NULL, k->grid[i]);
    vt_json_close(w);
    vt_json_int(w, "threads", k->threads);
    vt_json_int(w, "cluster", k->cluster > 1 ? k->cluster : 1);
    vt_json_int(w, "dynamic_shared_bytes", k->dynamic_shared);
    if (story_gpu_occupancy(g, k, &in, &o)) {
        vt_json_int(w, "ctas_per_sm", o.ctas);
        vt_json_tagged(w, "occupancy", o.share, 4, derived);
        vt_json_string(w, "limited_by", vt_occupancy_limit_name(o.limit));
        vt_json_tagged(w, "waves", o.waves, 3, derived);
        vt_json_tagged(w, "tail", o.tail, 4, derived);
        vt_json_string(w, "one_cta_more", story_gpu_cta_more(k, &o, more) ? more : NULL);
    }
    vt_json_close(w);
}

void story_gpu_kernels(vt_json *w, const phase *p, const op_sum *o)
{
    vt_json_open(w, "kernels", '[');
    for (int32_t i = 0; i < o->n_kernels; i++) {
        const vt_kernel_facts *k = kernel_facts(&o->kernel[i]);
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "name", k->name);
        vt_json_real(w, "launches", (double)o->kernel[i].n / p->n_timed);
        vt_json_int(w, "registers", k->registers);
        vt_json_int(w, "spill_bytes", k->spill_bytes);
        vt_json_int(w, "shared_bytes", k->shared_bytes);
        put_launch(w, o->kernel[i].source, k);
        vt_json_close(w);
    }
    vt_json_close(w);
}

void story_gpu_observer(vt_json *w, const phase *d, const phase_lane *g)
{
    double events = d->n_timed ? 1 : NAN; /* the uploads'; then one a call, or one behind all */
    for (int32_t i = 0; i < d->n_ops && d->n_timed && !g->n_stamped; i++)
        events += d->op[i].link ? 0 : (double)d->op[i].n_calls / d->n_timed;
    events += g->n_stamped > 0;
    double timed = d->n_timed ? d->timed_s / d->n_timed : NAN;
    double whole = g->n_whole ? g->whole_s / g->n_whole : NAN;
    if (g->n_stamped > 0)
        vt_json_string(w, "timed_by", "stamps");
    vt_json_tagged(w, "events_per_step", events, 1, derived);
    vt_json_tagged(w, "event_ns", g->source->is.event_ns, 1, measured);
    vt_json_tagged(w, "read_ns", g->source->is.read_ns, 1, measured);
    put_us(w, "timed_step_us", timed, measured);
    put_us(w, "whole_step_us", whole, measured);
    double period = g->n_timed ? (double)g->n_steps / g->n_timed : NAN;
    vt_json_real(w, "period", period);
    put_us(w, "step_us", (timed - whole) / period, derived);
    vt_json_tagged(w, "tax", (timed / whole - 1) / period, 5, derived);
}

void story_gpu_not_measured(vt_json *w, const phase phases[STORY_PHASES])
{
    int32_t whole = 0, stamped = 0;
    char what[64], why[320];
    const story_source *g = NULL;
    for (int i = 0; i < STORY_PHASES; i++) {
        const phase_lane *lane = phase_stream(&phases[i]);
        whole += lane->n_steps - lane->n_timed;
        stamped += lane->n_stamped;
        g = lane->source;
    }
    if (g->n_vitals > 0)
        put_missing(w, "counters over time, and samples of the program counter",
                    "--story-lanes samples counters over time in a run of its own (tier T2), and "
                    "bench kernels --lines the program counter (T4); counters are of tier T3, "
                    "times of tier T0");
    else
        put_missing(w, "bytes moved, cache hits, occupancy, stalls",
                    g->is.no_vitals ? g->is.no_vitals
                                    : "--story-counters reads the GPU's counters (tier T3); times "
                                      "are of tier T0");
    if (whole > 0) {
        snprintf(what, sizeof what, "op calls of %d step%s", whole, whole == 1 ? "" : "s");
        snprintf(why, sizeof why,
                 stamped ? "their kernels were not stamped; op times are from steps whose were"
                         : "a graph is one launch, so its calls cannot be timed apart; op times "
                           "are from steps that ran call by call%s%s",
                 g->is.no_stamps ? ": " : "", g->is.no_stamps ? g->is.no_stamps : "");
        put_missing(w, what, why);
    }
    if (!g->has_state)
        put_missing(w, "clocks, power, temperature", g->state_missing);
    if (!stamped)
        put_missing(w, "overlap of neighbouring kernels",
                    "in a timed step each kernel begins after the end of the one before it");
}
