/* Lab sglang 03, last part: whole engines of other levels, each in a process of its own, because a
 * process decides once which instructions and kernels it uses. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu.h"
#include "lab/sglang_backends.h"
#include "lab/sglang_inside.h"
#include "story/read.h"

/* "VITRINE_ISA=avx2": what a child's environment has beyond this one's. */
static int32_t list_levels(const lab *l, char out[][48], int32_t most)
{
    int32_t n = 0;
    if (l->ordinal >= 0) {
        snprintf(out[n++], 48, "VITRINE_CUDA_LEVEL=80");
        snprintf(out[n++], 48, "VITRINE_CUDA_LEVEL=90");
        return n;
    }
    /* the portable level takes a minute for what AVX-512 does in a second */
    for (vt_isa isa = l->quick ? VT_ISA_AVX2 : VT_ISA_PORTABLE; isa < VT_ISA_COUNT && n < most;
         isa++) {
        vt_isa found;
        vt_err why;
        if (vt_isa_parse(vt_isa_name(isa), &found, &why) == VT_OK)
            snprintf(out[n++], 48, "VITRINE_ISA=%s", vt_isa_name(isa));
    }
    return n;
}

/* Runs `bench latency` and reads the object that it prints. */
static vt_status run_child(lab *l, const char *level, int32_t prompt, int32_t gen, json_t **out,
                           vt_err *err)
{
    char path[1024], p[16], g[16], threads[16], device[16] = "cpu", self[SGLANG_PATH];
    int exit_status = 0;
    json_error_t why;
    snprintf(path, sizeof path, "%s/level-%.40s.json", l->results, strchr(level, '=') + 1);
    snprintf(p, sizeof p, "%d", prompt);
    snprintf(g, sizeof g, "%d", gen);
    snprintf(threads, sizeof threads, "%d", l->threads > 0 ? l->threads : 1);
    if (l->ordinal >= 0)
        snprintf(device, sizeof device, "cuda:%d", l->ordinal);
    const char *const argv[] = {"env",    level,      sglang_self(self),
                                "bench",  "latency",  "--model",
                                l->model, "--json",   "--quiet",
                                "-r",     "1",        "--device",
                                device,   "--prompt", p,
                                "--gen",  g,          "--threads",
                                threads,  NULL};
    TRY(lab_tool_run(l, argv, path, 120, &exit_status, err));
    if (exit_status != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: bench latency ended with status %d", level,
                       exit_status);
    *out = json_load_file(path, 0, &why);
    if (!*out)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s", path, why.text);
    return VT_OK;
}

vt_status sglang_whole_engines(lab *l, int32_t prompt, int32_t gen, vt_err *err)
{
    enum { MOST = 6 };
    char level[MOST][48];
    int32_t n = list_levels(l, level, MOST), ran = 0;
    prompt = l->quick ? 32 : prompt;
    lab_table(l, "whole_engine",
              "Whole engines of other levels: the linear layers change too, so this is no "
              "comparison of attention",
              "process|>prompt|>prefill tokens/s|>decode tokens/s|>TTFT|what came");
    for (int32_t i = 0; i < n; i++) {
        json_t *bench = NULL;
        vt_err why;
        vt_status status = run_child(l, level[i], prompt, gen, &bench, &why);
        if (status == VT_ERR_CANCELLED)
            return vt_fail(err, status, "%s", why.message);
        lab_cell(l, "%s", level[i]);
        lab_cell(l, "%d", prompt);
        lab_cell_number(l, story_num(bench, "prefill_tokens_per_s"), LAB_TOKENS_PER_S);
        lab_cell_number(l, story_num(bench, "decode_tokens_per_s"), LAB_TOKENS_PER_S);
        lab_cell_number(l, story_num(bench, "ttft_ms") * 1e-3, LAB_SECONDS);
        lab_cell(l, "%.60s", status == VT_OK ? "ran" : why.message);
        ran += status == VT_OK;
        json_decref(bench);
    }
    lab_table_end(l);
    lab_check(l, ran > 0 || l->ordinal >= 0, "a whole engine of at least one level ran (%d of %d)",
              ran, n);
    return VT_OK;
}
