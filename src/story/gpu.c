/* The GPU's part of a story (story/gpu.h, docs/story-format.md). */
#include "story/gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/numbers.h"

static json_t *known(double v, int digits) { return tagged(v < 0 ? NAN : v, digits, measured); }

/* Clocks tell why a roof of another day is not reached. */
static json_t *state_json(const story_source *g)
{
    const vt_gpu_state *s = &g->state;
    json_t *held = json_array();
    if (!g->has_state) {
        json_decref(held);
        return json_null();
    }
    for (int32_t i = 1; s->throttle > 0 && vt_nvml_reason(i); i++) /* 0: idle, as it is now */
        if (s->throttle >> i & 1)
            json_array_append_new(held, json_string(vt_nvml_reason(i)));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sm_mhz", known(s->sm_mhz, 0),
                     "sm_max_mhz", known(s->sm_max_mhz, 0), "memory_mhz", known(s->memory_mhz, 0),
                     "memory_max_mhz", known(s->memory_max_mhz, 0), "power_w", known(s->power_w, 1),
                     "power_limit_w", known(s->power_limit_w, 1), "temperature_c",
                     known(s->temperature_c, 0), "clocks_held_by", held);
}

json_t *story_gpu_json(const story_input *in)
{
    const story_source *g = story_gpu(in);
    if (!g)
        return json_null();
    const vt_device_facts *d = &g->is.device;
    return json_pack("{s:i, s:s, s:s, s:i, s:i, s:I, s:I, s:i, s:i, s:o, s:o}", "ordinal",
                     d->ordinal, "name", in->roofs.name, "arch", d->level, "level", d->kernel_level,
                     "multiprocessors", d->sm_count, "memory_bytes", (json_int_t)d->memory_bytes,
                     "l2_bytes", (json_int_t)d->l2_bytes, "driver_version", d->driver_version,
                     "kernels_compiled", g->is.n_kernels, "clock_error_us",
                     us(g->is.clock_error_ns * 1e-9, measured), "state", state_json(g));
}

void story_gpu_how(const phase *p, char *out, size_t size)
{
    const phase_on_gpu *g = &p->gpu;
    const char *unit = strcmp(p->name, "decode") == 0 ? "sequence" : "token";
    double used = g->n_steps ? g->tokens / g->n_steps : 0;
    /* where each step was timed, none was left to its graph */
    const char *in = g->n_whole ? "in " : "call by call; unwatched in ";
    if (g->n_steps == 0)
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

json_t *story_gpu_phase(const story_input *in, const phase *p)
{
    const phase_on_gpu *g = &p->gpu;
    char how[96];
    if (!story_gpu(in))
        return json_null();
    double n = g->n_steps ? g->n_steps : NAN;
    int32_t timed = g->n_steps - g->n_whole;
    story_gpu_how(p, how, sizeof how);
    return json_pack(
        "{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o}", "how", how,
        "graph_tokens_least", g->graph_least, "graph_tokens_most", g->graph_most, "tokens",
        tagged(g->tokens / n, 3, measured), "kernels_per_step", tagged(g->kernels / n, 2, measured),
        "host_to_device_bytes", tagged(g->bytes_in / n, 0, measured), "idle_us",
        us(g->n_idle ? g->idle_s / g->n_idle : NAN, measured), "whole_steps", g->n_whole,
        "whole_step_us", us(g->n_whole ? g->whole_s / g->n_whole : NAN, measured), "slower",
        tagged(g->n_whole && p->n_timed ? p->timed_s / p->n_timed / phase_step_s(p) : NAN, 3,
               derived),
        "prepare_timed_us", us(timed ? g->prepare_timed_s / timed : NAN, measured),
        "prepare_whole_us", us(g->n_whole ? g->prepare_whole_s / g->n_whole : NAN, measured));
}

json_t *story_gpu_kernels(const story_input *in, const phase *p, const op_sum *o)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < o->n_kernels; i++) {
        const vt_kernel_facts *k = &story_gpu(in)->kernel[o->kernel[i].kernel];
        json_array_append_new(list, json_pack("{s:s, s:f, s:i, s:i, s:i}", "name", k->name,
                                              "launches", (double)o->kernel[i].n / p->n_timed,
                                              "registers", k->registers, "spill_bytes",
                                              k->spill_bytes, "shared_bytes", k->shared_bytes));
    }
    return list;
}

json_t *story_gpu_observer(const story_input *in, const phase *d, story_facts *f)
{
    const story_source *g = story_gpu(in);
    double events = d->n_timed ? 1 : NAN; /* the uploads'; then one a launch of a call */
    for (int32_t i = 0; i < d->n_ops && d->n_timed; i++)
        events += d->op[i].link ? 0 : (double)d->op[i].n_calls / d->n_timed;
    double timed = d->n_timed ? d->timed_s / d->n_timed : NAN;
    double whole = d->gpu.n_whole ? d->gpu.whole_s / d->gpu.n_whole : NAN;
    f->recorder_s = timed - whole;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "events_per_step",
                     tagged(events, 1, derived), "event_ns", tagged(g->is.event_ns, 1, measured),
                     "read_ns", tagged(g->is.read_ns, 1, measured), "timed_step_us",
                     us(timed, measured), "whole_step_us", us(whole, measured), "period",
                     g->is.period, "step_us", us((timed - whole) / g->is.period, derived), "tax",
                     tagged((timed / whole - 1) / g->is.period, 5, derived));
}

void story_gpu_not_measured(const story_input *in, const phase phases[STORY_PHASES], json_t *list)
{
    int32_t whole = 0;
    for (int i = 0; i < STORY_PHASES; i++)
        whole += phases[i].gpu.n_whole;
    json_array_append_new(
        list, json_pack("{s:s, s:s}", "what", "bytes moved, cache hits, occupancy, stalls", "why",
                        "the GPU's counters are CUPTI's (tiers T2 and T3), which is not read yet; "
                        "times are of tier T0"));
    if (whole > 0) {
        char why[200];
        snprintf(why, sizeof why,
                 "a graph is one launch, and nobody sees into it; op times are from steps that ran "
                 "call by call");
        char what[64];
        snprintf(what, sizeof what, "op calls of %d step%s", whole, whole == 1 ? "" : "s");
        json_array_append_new(list, json_pack("{s:s, s:s}", "what", what, "why", why));
    }
    if (!story_gpu(in)->has_state)
        json_array_append_new(list, json_pack("{s:s, s:s}", "what", "clocks, power, temperature",
                                              "why", story_gpu(in)->state_missing));
    json_array_append_new(
        list, json_pack("{s:s, s:s}", "what", "overlap of neighbouring kernels", "why",
                        "in a timed step each kernel begins after the end of the one before it"));
}
