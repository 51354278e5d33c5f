/* Lab 06 of the track mini-sglang: all labs of the track and a full forward pass, in one report.
 *
 *   labs 00 to 05 and radix      a request through the engine
 *   each a process of its own    prefill, then decode, call by call
 *            \                      /
 *             full_pipeline.txt, timeline.json, an .nsys-rep where nsys is
 *
 * A lab whose result is there already, from this program on this device and model, is not run
 * again, so an interrupted pipeline can be resumed; --all runs all of them in their full form. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "lab/kit/result.h"
#include "lab/kit/tracks.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "lab/profilers/nsys_run.h"
#include "story/read.h"
#include "version.h"

enum { MAX_ARGS = 24, LAB_LIMIT_S = 580 };

/* ---- the other labs ---- */

/* Returns true if the lab runs on the GPU here: one that measures times goes to the CPU where the
 * GPU is emulated. */
static bool on_gpu(const lab *l, const lab_def *def)
{
    return l->ordinal >= 0 && (!l->emulated || def->kernels);
}

/* Returns true if a result is this program's, on this device and model, and no smaller than asked
 * for. */
static bool is_fresh(const lab *l, const lab_def *def, const json_t *result, bool full)
{
    char text[STORY_TEXT];
    const json_t *machine = story_get(result, "machine");
    const char *device = on_gpu(l, def) ? "cuda" : "cpu";
    if (!result || strcmp(story_text(result, "commit", text), VT_COMMIT) != 0 ||
        strcmp(story_text(result, "model", text), l->model) != 0 ||
        strncmp(story_text(machine, "device", text), device, strlen(device)) != 0)
        return false;
    return !full || !json_is_true(story_get(result, "quick"));
}

/* `vitrine lab mini-sglang NN` in a process of its own, so that a lab that fails or hangs takes
 * nothing with it. */
static vt_status run_lab(lab *l, const lab_def *def, bool full, int *code, vt_err *err)
{
    const char *argv[MAX_ARGS], *results = lab_text(l, "results"),
                                *machine = lab_text(l, "machine");
    char threads[16], device[16], log[700];
    int n = 0;
    snprintf(threads, sizeof threads, "%d", l->threads);
    snprintf(device, sizeof device, on_gpu(l, def) ? "cuda:%d" : "cpu", l->ordinal);
    snprintf(log, sizeof log, "%s/%s_%s.log", l->results, def->number, def->name);
    const char *const always[] = {lab_self(),  "lab",          lab_track_name[LAB_MINI_SGLANG],
                                  def->number, "--no-predict", "--device",
                                  device,      "--model",      l->model};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        argv[n++] = always[i];
    if (!full)
        argv[n++] = "--quick";
    if (!on_gpu(l, def)) {
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    if (results) {
        argv[n++] = "--results";
        argv[n++] = results;
    }
    if (machine) {
        argv[n++] = "--machine";
        argv[n++] = machine;
    }
    argv[n] = NULL;
    lab_note(l, "lab %s %s", def->number, def->name);
    return lab_tool_run(l, argv, log, LAB_LIMIT_S, code, err);
}

typedef struct counted {
    int checks, wrong, items, missing, knobs;
} counted;

static counted count(const json_t *result)
{
    counted c = {0};
    const json_t *v;
    const char *key;
    size_t i;
    json_array_foreach(story_get(result, "checks"), i, v)
    {
        c.checks++;
        c.wrong += !json_is_true(story_get(v, "ok"));
    }
    /* jansson's loop takes an object that is not const */
    json_object_foreach((json_t *)(uintptr_t)story_get(result, "items"), key, v)
    {
        c.items++;
        c.missing += story_get(v, "missing") != NULL;
    }
    c.knobs = (int)json_array_size(story_get(result, "knobs"));
    return c;
}

/* One row of the table; appends the result to the report. */
static void put_lab(lab *l, const lab_def *def, const json_t *result, const char *how,
                    vt_buf *report)
{
    char text[STORY_TEXT];
    counted c = count(result);
    lab_cells(l, "%s %s|%s|%s|%f s|%d of %d|%d|%d|%d|%s", def->number, def->name, how,
              json_is_true(story_get(result, "quick")) ? "quick" : "full",
              story_num(result, "seconds"), c.checks - c.wrong, c.checks, c.items - c.missing,
              c.missing, c.knobs, story_text(result, "state", text));
    vt_buf_printf(report, "\n==== lab %s %s ====\n\n", def->number, def->name);
    lab_result_render(result, &l->term, report);
    lab_check(l, c.wrong == 0, "lab %s: %d of its %d checks failed (expected 0)", def->number,
              c.wrong, c.checks);
}

/* Runs what is missing and puts every lab of the track into the table. */
static vt_status one_lab(lab *l, const lab_def *def, vt_buf *report, vt_err *err)
{
    bool full = lab_flag(l, "all");
    json_t *result = NULL;
    int code = 0;
    TRY(lab_result_read(l->results, def, &result, err));
    bool kept = is_fresh(l, def, result, full) && !full;
    if (!kept) {
        json_decref(result);
        result = NULL;
        TRY(run_lab(l, def, full, &code, err));
        TRY(lab_result_read(l->results, def, &result, err));
    }
    lab_check(l, result && code == 0,
              "lab %s ended with status %d and left %s (expected 0 and a "
              "result; its log is %s_%s.log)",
              def->number, code, result ? "a result" : "none", def->number, def->name);
    if (result)
        put_lab(l, def, result, kept ? "kept" : "run now", report);
    json_decref(result);
    return VT_OK;
}

static vt_status all_labs(lab *l, vt_buf *report, vt_err *err)
{
    vt_status status = VT_OK;
    lab_table(l, "labs", "the labs of this track",
              "lab|how|form|>took|>checks|>told|>missing|>knobs|state");
    for (int32_t i = 0; lab_mini_sglang[i] && status == VT_OK; i++) {
        const lab_def *def = lab_mini_sglang[i];
        if (def == l->def)
            continue;
        status = one_lab(l, def, report, err);
    }
    return status;
}

/* ---- the run ---- */

/* The pass is a measurement of times, and a whole model takes an emulated GPU very long. */
static void no_forward(lab *l)
{
    static const char *const key[] = {"timeline", "trace",    "kernels", "step",
                                      "counted",  "hardware", "waits"};
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        lab_missing(l, key[i],
                    "the pass is timed, and times mean nothing on an emulated GPU; the labs above "
                    "checked its kernels");
}

static vt_status run(lab *l, vt_err *err)
{
    vt_buf report = {0};
    if (!l->emulated)
        TRY(mini_forward_predict(l, err));
    vt_status status = all_labs(l, &report, err);
    if (status == VT_OK && l->emulated)
        no_forward(l);
    else if (status == VT_OK)
        status = mini_forward(l, err);
    if (status == VT_OK)
        status = lab_nsys(l, "full_pipeline", err);
    if (status == VT_OK)
        status = mini_write_file(l, "full_pipeline.txt", "the results of all labs of the track",
                                 &report, err);
    if (status == VT_OK)
        lab_item(l, "report",
                 "full_pipeline.txt has every lab's result as it was printed (%zu "
                 "bytes); this lab's own is beside it",
                 report.len);
    vt_buf_release(&report);
    return status;
}

const lab_def mini_full_pipeline = {
    .track = LAB_MINI_SGLANG,
    .number = "06",
    .name = "full_pipeline",
    .goal = "You know how the kernels of this track make up a forward pass, and what share of it "
            "each one has.",
    .about = {"Every lab of this track runs, or its result is taken if this program made it.",
              "Then one request goes through the engine: 128 random tokens in, 33 out.",
              "Every call of its steps is timed and held against its roof."},
    .alias = {"06_full_pipeline.sh", NULL},
    .knobs = {{"--no-graphs", LAB_RUNS, LAB_STEP, NULL,
               "a whole step is one CUDA graph, which the host launches once"},
              {"VITRINE_CUDA_PDL", LAB_RUNS, LAB_STEP, NULL,
               "a kernel starts while the one before it ends (programmatic dependent launch)"},
              {"--no-overlap", LAB_OFFERED, LAB_STEP, "--no-overlap"},
              {"VITRINE_CUDA_ONE_GRAPH", LAB_OFFERED, LAB_STEP, "VITRINE_CUDA_ONE_GRAPH=1"}},
    .items = {{"labs", "every lab of the track", false},
              {"timeline", "a full forward pass as a timeline", false},
              {"trace", "the pass as a trace", false},
              {"nsys", "the pass under nsys", false},
              {"report", "one report", false},
              {"kernels", "every kernel's state", true},
              {"step", "a decode step beside its floor", true},
              {"counted", "what the hardware did in each op, as its counters say", true},
              {"hardware", "a layer of each phase, call by call, with the hardware's state", true},
              {"waits", "each kernel of a step under ncu: its units, and why its warps wait",
               true}},
    .kernels = true,
    .run = run,
};
