/* Code that the benches share (cli/bench/bench.h). */
#include "cli/bench/bench.h"

#include <math.h>
#include <string.h>

#include "base/stats.h"
#include "device/cpu.h"
#include "ops/knobs.h"
#include "version.h"

void cli_sample_add(cli_sample *s, double v)
{
    if (!isfinite(v))
        return;
    s->low = s->n ? fmin(s->low, v) : v;
    s->high = s->n ? fmax(s->high, v) : v;
    if (s->n < CLI_SAMPLE_KEPT)
        s->kept[s->n] = v;
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

void cli_sample_write(vt_json *w, const char *name, const cli_sample *s, int digits)
{
    char key[64];
    double v[CLI_SAMPLE_KEPT];
    size_t n = s->n < CLI_SAMPLE_KEPT ? (size_t)s->n : CLI_SAMPLE_KEPT;
    memcpy(v, s->kept, sizeof v);
    vt_json_fixed(w, name, cli_sample_mean(s), digits);
    snprintf(key, sizeof key, "%s_stdev", name);
    vt_json_fixed(w, key, cli_sample_stdev(s), digits);
    snprintf(key, sizeof key, "%s_median", name);
    vt_json_fixed(w, key, vt_median(v, n), digits);
    snprintf(key, sizeof key, "%s_noise", name);
    vt_json_fixed(w, key, vt_noise(v, n), 4);
}

static void write_machine(vt_json *w, int32_t gpu)
{
    const vt_cpu *cpu = vt_cpu_get();
    vt_json_open(w, "machine", '{');
    vt_json_string(w, "cpu", cpu->model);
    vt_json_string(w, "level", vt_isa_name(cpu->level));
    vt_json_int(w, "cpus", cpu->n_cpus);
    vt_json_int(w, "cores", cpu->n_cores);
    vt_json_int(w, "memory_bytes", cpu->memory_bytes);
    if (gpu < 0)
        vt_json_null(w, "gpu");
    else if (cli_gpu_open(w, "gpu", gpu))
        vt_json_close(w);
    vt_json_close(w);
}

static void write_settings(vt_json *w, const cli *c)
{
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    vt_json_open(w, "settings", '{');
    for (int32_t i = 0; i < n; i++)
        if (opt[i].verbs & c->verb->options)
            vt_json_string(w, opt[i].key,
                           vt_options_get(c->options, opt[i].id ? opt[i].id : opt[i].key));
    vt_json_close(w);
}

/* Those that are set. */
static void write_knobs(vt_json *w)
{
    vt_json_open(w, "knobs", '{');
    const vt_knob_row *k;
    for (int32_t i = 0; (k = vt_knob_at(i)); i++)
        if (vt_knob_text(k))
            vt_json_string(w, k->env, vt_knob_text(k));
    vt_json_close(w);
}

void cli_bench_begin(vt_json *w, const cli *c, const char *bench, const char *model)
{
    char device[16];
    bool chosen = vt_option_find("device", c->verb->options) != NULL; /* simulate runs nowhere */
    if (chosen)
        vt_options_device(c->options, device, sizeof device);
    vt_json_object(w);
    vt_json_string(w, "bench", bench);
    if (model)
        vt_json_string(w, "model", model);
    vt_json_string(w, "version", vt_version());
    vt_json_string(w, "commit", VT_COMMIT);
    vt_json_string(w, "device", chosen ? device : NULL);
    write_machine(w, chosen ? vt_options_cuda(c->options) : -1);
    write_settings(w, c);
    write_knobs(w);
}
