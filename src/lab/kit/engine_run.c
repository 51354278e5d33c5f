/* A whole engine in a process of its own (engine_run.h). */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "lab/kit/engine_run.h"
#include "lab/sglang/inside.h"
#include "model/model.h"
#include "story/read.h"

enum { LIMIT_S = 120 };

static vt_status run_bench(lab *l, const lab_engine_ask *ask, const char *path, vt_err *err)
{
    enum { MOST = 40 };
    char number[5][16], device[16] = "cpu", self[SGLANG_PATH];
    const int32_t value[5] = {ask->prompt, ask->gen, ask->batch > 0 ? ask->batch : 1,
                              ask->reps > 0 ? ask->reps : 5, l->threads > 0 ? l->threads : 1};
    int exit_status = 0, n = 0;
    const char *argv[MOST];
    for (int i = 0; i < 5; i++)
        snprintf(number[i], sizeof number[i], "%d", value[i]);
    if (l->ordinal >= 0)
        snprintf(device, sizeof device, "cuda:%d", l->ordinal);
    argv[n++] = "env";
    if (ask->env)
        argv[n++] = ask->env;
    const char *const always[] = {
        sglang_self(self), "bench", "latency",  "--model",   l->model, "--json",  "--quiet",
        "--device",        device,  "--prompt", number[0],   "--gen",  number[1], "--batch",
        number[2],         "-r",    number[3],  "--threads", number[4]};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        argv[n++] = always[i];
    for (int i = 0; i < LAB_ENGINE_OPTIONS && ask->option[i]; i++)
        argv[n++] = ask->option[i];
    argv[n] = NULL;
    TRY(lab_tool_run(l, argv, path, LIMIT_S, &exit_status, err));
    if (exit_status != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: bench latency ended with status %d",
                       ask->env         ? ask->env
                       : ask->option[0] ? ask->option[0]
                                        : "this machine's own choice",
                       exit_status);
    return VT_OK;
}

/* The file is named after the setting: "engine-VITRINE_ISA=avx2.json". */
vt_status lab_engine_child(lab *l, const lab_engine_ask *ask, lab_engine_run *out, vt_err *err)
{
    char path[1100];
    json_error_t why;
    const char *name = ask->env ? ask->env : ask->option[0] ? ask->option[0] + 2 : "own-choice";
    snprintf(path, sizeof path, "%s/engine-%.60s.json", l->results, name);
    TRY(run_bench(l, ask, path, err));
    json_t *bench = json_load_file(path, 0, &why);
    if (!bench)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s", path, why.text);
    double ttft_ms = story_num(bench, "ttft_ms_median"),
           rate = story_num(bench, "decode_tokens_per_s_median");
    int32_t batch = ask->batch > 0 ? ask->batch : 1;
    *out = (lab_engine_run){
        .ttft_s = ttft_ms * 1e-3,
        .ttft_noise = story_num(bench, "ttft_ms_noise"),
        .token_s = batch / rate,
        .token_noise = story_num(bench, "decode_tokens_per_s_noise"),
        .prefill_tokens_per_s = story_num(bench, "prefill_tokens_per_s"),
        .decode_tokens_per_s = rate,
    };
    json_decref(bench);
    return VT_OK;
}

bool lab_engine_small(lab *l, char why[160])
{
    enum { MOST_GB = 4 };
    vt_options *o = NULL;
    vt_model *m = NULL;
    vt_err err;
    double gb = NAN;
    if (vt_options_new(&o, &err) == VT_OK && vt_options_set(o, "model", l->model, &err) == VT_OK &&
        vt_model_open(o, &m, &err) == VT_OK)
        gb = (double)m->weight_bytes * 1e-9;
    vt_model_free(m);
    vt_options_free(o);
    bool small = gb <= MOST_GB;
    if (!small)
        snprintf(why, 160,
                 "each setting loads the model in a process of its own, and %.1f GB take too long "
                 "for that: ask with a model below %d GB",
                 gb, MOST_GB);
    return small;
}
