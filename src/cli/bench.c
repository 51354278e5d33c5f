/* What the benches share (cli/bench.h). */
#include "base/knob.h"
#include "cli/bench.h"

#include <math.h>

#include "device/cpu.h"
#include "version.h"

void cli_sample_add(cli_sample *s, double v)
{
    if (!isfinite(v))
        return;
    s->low = s->n ? fmin(s->low, v) : v;
    s->high = s->n ? fmax(s->high, v) : v;
    s->sum += v;
    s->squares += v * v;
    s->n++;
}

double cli_sample_mean(const cli_sample *s) { return s->n ? s->sum / s->n : NAN; }

double cli_sample_stdev(const cli_sample *s)
{
    if (s->n < 2)
        return NAN;
    double mean = s->sum / s->n;
    return sqrt(fmax(0, (s->squares - s->n * mean * mean) / (s->n - 1)));
}

void cli_sample_json(json_t *object, const char *name, const cli_sample *s, int digits)
{
    char stdev[64];
    snprintf(stdev, sizeof stdev, "%s_stdev", name);
    json_object_set_new(object, name, cli_json_number(cli_sample_mean(s), digits));
    json_object_set_new(object, stdev, cli_json_number(cli_sample_stdev(s), digits));
}

json_t *cli_bench_json(const cli *c, const char *bench, const char *model)
{
    const vt_cpu *cpu = vt_cpu_get();
    json_t *settings = json_object();
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    for (int32_t i = 0; i < n; i++)
        if (opt[i].verbs & c->verb->options) {
            const char *id = opt[i].id ? opt[i].id : opt[i].key;
            const char *value = vt_options_get(c->options, id);
            json_object_set_new(settings, opt[i].key, value ? json_string(value) : json_null());
        }
    json_t *knobs = json_object(); /* those that are set */
    for (int k = 0; k < VT_N_KNOBS; k++)
        if (vt_knob_text((vt_knob)k))
            json_object_set_new(knobs, vt_knobs[k].env, json_string(vt_knob_text((vt_knob)k)));
    char device[16];
    bool chosen = vt_option_find("device", c->verb->options) != NULL; /* simulate runs nowhere */
    int32_t gpu = chosen ? vt_options_cuda(c->options) : -1;
    if (chosen)
        vt_options_device(c->options, device, sizeof device);
    json_t *machine = json_pack("{s:s, s:s, s:i, s:i, s:I, s:o}", "cpu", cpu->model, "level",
                                vt_isa_name(cpu->level), "cpus", cpu->n_cpus, "cores", cpu->n_cores,
                                "memory_bytes", (json_int_t)cpu->memory_bytes, "gpu",
                                gpu < 0 ? json_null() : cli_gpu_json(gpu));
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s?}", "bench", bench, "model", model, "version",
                          vt_version(), "commit", VT_COMMIT, "device", chosen ? device : NULL);
    json_object_set_new(j, "machine", machine);
    json_object_set_new(j, "settings", settings);
    json_object_set_new(j, "knobs", knobs);
    return j;
}
