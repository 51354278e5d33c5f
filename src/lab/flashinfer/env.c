/* Lab flashinfer 00: the state of the cache of compiled kernels, and what makes the next start
 * compile. Needs no GPU: naming kernels is host work, and so is looking them up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "lab/flashinfer/flashinfer.h"
#include "lab/kit/jit_kernels.h"

static void tell_compiler(lab *l, const jit_ask *ask)
{
    cuda_nvrtc nvrtc;
    vt_err err = {0};
    const char *where = l->ordinal < 0 ? "this machine has no GPU, so the labs take an H200's"
                                       : "this GPU's";
    if (cuda_nvrtc_open(&nvrtc, &err) == VT_OK)
        lab_item(l, "jit_ready",
                 "ready: NVRTC %d.%d is here and compiles for %s (%s). Kernels are text in this "
                 "program; no toolkit and no headers are needed",
                 nvrtc.major, nvrtc.minor, ask->arch, where);
    else
        lab_item(l, "jit_ready",
                 "not ready: %s. Kernels that are in the cache would still run; none can be "
                 "compiled for %s (%s)",
                 err.message, ask->arch, where);
}

/* Counts the model's kernels whose name no file of the cache has. Whether the key of a file is
 * right too shows only when it is looked up. */
static vt_status expect(const vt_jit *j, const jit_ask *ask, int32_t *missing, double *ms,
                        vt_err *err)
{
    jit_file *file;
    int32_t n;
    cuda_nvrtc nvrtc = {0};
    bool any = cuda_nvrtc_open(&nvrtc, NULL) != VT_OK; /* a cubin of any version will do */
    TRY(lab_jit_files(&file, &n, err));
    *missing = 0;
    *ms = 0;
    for (int32_t i = 0; i < vt_jit_count(j); i++) {
        int32_t k = 0;
        while (k < n && (strcmp(file[k].name, vt_jit_name(j, i)) != 0 ||
                         strcmp(file[k].arch, ask->arch) != 0 ||
                         (!any && file[k].nvrtc_minor != nvrtc.minor)))
            k++;
        *missing += k == n;
        *ms += k < n ? file[k].compile_ms : 0;
    }
    free(file);
    return VT_OK;
}

/* Measures what reading the cache takes, three times; sorted. */
static vt_status read_times(const jit_ask *ask, double seconds[3], vt_err *err)
{
    for (int r = 0; r < 3; r++) {
        vt_cuda *c;
        int32_t ready;
        TRY(lab_jit_model(ask, &c, err));
        int64_t begin = vt_now_ns();
        vt_status status = vt_jit_read_cache(c->jit, &ready, err);
        seconds[r] = (double)(vt_now_ns() - begin) * 1e-9;
        vt_cuda_close(c);
        TRY(status);
    }
    vt_sort_doubles(seconds, 3);
    return VT_OK;
}

static vt_status tell_next_start(lab *l, const jit_ask *ask, vt_jit *j, vt_err *err)
{
    int32_t missing, ready, n = vt_jit_count(j);
    double ms, read[3];
    TRY(expect(j, ask, &missing, &ms, err));
    lab_predict(l, "kernels that the next start compiles", missing, VT_COUNT,
                "the kernels whose name, architecture and NVRTC no file of the cache has");
    TRY(vt_jit_read_cache(j, &ready, err));
    lab_outcome(l, "kernels that the next start compiles", n - ready, false);
    lab_item(l, "next_start",
             "%s needs %d kernels on %s: %d are in the cache, %d would be compiled. A file "
             "counts where its key (the text with its headers, the parameters and the "
             "architecture) and the version of NVRTC are the same",
             ask->model, n, ask->arch, ready, n - ready);
    if (ready == 0 || ready < n - missing)
        return VT_OK;
    TRY(read_times(ask, read, err));
    double middle = read[1], noise = vt_noise(read, 3);
    lab_turn(l, &(lab_knob){.name = "cubin cache",
                            .where = "VITRINE_CACHE",
                            .what = "having the kernels that are in the cache",
                            .gain = NAN,
                            .before_s = ms * 1e-3,
                            .after_s = middle,
                            .after_noise = noise,
                            .why = "before: compiling them one after the other, as their files "
                                   "say; after: opening NVRTC for its version, hashing the texts "
                                   "and reading the files"});
    return VT_OK;
}

/* Measures what naming the kernels takes, for all sizes of steps and for few of them. */
static vt_status turn_sizes(lab *l, const jit_ask *ask, vt_err *err)
{
    enum { TIMES = 3 };
    double seconds[2][TIMES];
    for (int few = 0; few < 2; few++) {
        jit_ask some = *ask;
        some.max_seqs = few ? ask->max_seqs / 16 : ask->max_seqs;
        for (int r = 0; r < TIMES; r++) {
            vt_cuda *c;
            int64_t begin = vt_now_ns();
            TRY(lab_jit_model(&some, &c, err));
            seconds[few][r] = (double)(vt_now_ns() - begin) * 1e-9;
            vt_cuda_close(c);
        }
        vt_sort_doubles(seconds[few], TIMES);
    }
    const double *all = seconds[0], *some = seconds[1];
    lab_turn(l, &(lab_knob){.name = "16 times fewer sequences",
                            .where = "--max-running",
                            .what = "naming the kernels of a start",
                            .gain = NAN,
                            .before_s = all[1],
                            .before_noise = (all[2] - all[0]) / (2 * all[1]),
                            .after_s = some[1],
                            .after_noise = (some[2] - some[0]) / (2 * some[1]),
                            .why = "the dry run walks the program once for each size of step that "
                                   "gets a graph; no bytes are moved, so none are counted"});
    return VT_OK;
}

/* One row of the table of triggers: names the kernels of another start and compares their keys. */
static vt_status tell_change(lab *l, vt_jit *base, const jit_ask *ask, const char *what,
                             const char *why, int32_t *n_new, vt_err *err)
{
    vt_cuda *c;
    int32_t first;
    TRY(lab_jit_model(ask, &c, err));
    *n_new = lab_jit_new(c->jit, base, &first);
    lab_cells(l, "%s|%d|%d|%s", what, vt_jit_count(c->jit), *n_new, why);
    vt_cuda_close(c);
    return VT_OK;
}

static vt_status tell_triggers(lab *l, const jit_ask *ask, vt_jit *base, vt_err *err)
{
    jit_ask again = *ask, context = *ask, seqs = *ask, kv = *ask, page = *ask, model = *ask,
            arch = *ask;
    context.max_context = 8 * ask->max_context;
    seqs.max_seqs = ask->max_seqs / 4;
    kv.kv = VT_FP8_E4M3;
    page.page_size = ask->page_size / 4;
    model.model = "dummy:llama-3.1-8b";
    if (strcmp(ask->model, "dummy:qwen3-0.6b") == 0)
        model.model = "dummy:qwen3-8b";
    arch.arch = ask->level >= 90 ? "sm_80" : "sm_90a";
    arch.level = ask->level >= 90 ? 80 : 90;
    const struct {
        const char *what;
        const jit_ask *ask;
        const char *why;
        bool none, all;
    } row[] = {
        {"nothing: a second start", &again, "the keys are the same", true, false},
        {"a context 8 times as long", &context, "lengths are parameters of a launch", true, false},
        {"a quarter of the sequences", &seqs, "graph sizes, not kernels", false, false},
        {"--kv-dtype fp8", &kv, "what reads or writes KV", false, false},
        {"--page-size 16", &page, "pages are compiled into what walks them", false, false},
        {model.model, &model, "other widths and numbers of heads", false, false},
        {arch.arch, &arch, "the architecture is part of every key", false, true},
    };
    lab_table(l, "compile_triggers", "the keys are compared, nothing is compiled",
              "what changes|>kernels|>new|why");
    vt_status status = VT_OK;
    int32_t n_new[sizeof row / sizeof *row];
    for (size_t i = 0; status == VT_OK && i < sizeof row / sizeof *row; i++)
        status = tell_change(l, base, row[i].ask, row[i].what, row[i].why, &n_new[i], err);
    TRY(status);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (row[i].none)
            lab_check(l, n_new[i] == 0, "%s: %d new kernels, expected none", row[i].what, n_new[i]);
        if (row[i].all)
            lab_check(l, n_new[i] > 0 && n_new[i] >= vt_jit_count(base) / 2,
                      "%s: %d new kernels, expected every one", row[i].what, n_new[i]);
    }
    return VT_OK;
}

/* Kernels that are new with FP8 KV must be those that touch KV: each says fp8=1. */
static vt_status check_kv(lab *l, const jit_ask *ask, vt_jit *base, vt_err *err)
{
    jit_ask kv = *ask;
    vt_cuda *c;
    int32_t first, n, wrong = 0;
    kv.kv = VT_FP8_E4M3;
    TRY(lab_jit_model(&kv, &c, err));
    n = lab_jit_new(c->jit, base, &first);
    for (int32_t i = 0; i < vt_jit_count(c->jit); i++) {
        int32_t k = 0;
        while (k < vt_jit_count(base) && strcmp(vt_jit_name(c->jit, i), vt_jit_name(base, k)) != 0)
            k++;
        const char *name = vt_jit_name(c->jit, i);
        wrong += k == vt_jit_count(base) && !strstr(name, "fp8=1") &&
                 strncmp(name, "page_copy", 9) != 0;
    }
    vt_cuda_close(c);
    lab_check(l, n > 0 && wrong == 0,
              "FP8 KV brings %d new kernels; each has fp8=1 among its parameters or copies pages "
              "(%d do not)",
              n, wrong);
    return VT_OK;
}

static void tell_words(lab *l)
{
    static const char *const row[][3] = {
        {"a new build of vitrine", "the changed; a header: all", "the texts are hashed"},
        {"another version of NVRTC", "all", "it is in the file's name"},
        {"a damaged file", "that one", "its checksum is compared"},
        {"times of files, a backup", "none", "times are never compared"},
        {"another prompt or temperature", "none", "values are data, not text"},
        {"other weights of the same shape", "none", "weights are data, not text"},
    };
    lab_table(l, "never_and_always", "by the definition of the key",
              "what changes|compiled again|why");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int k = 0; k < 3; k++)
            lab_cell(l, "%s", row[i][k]);
}

static vt_status run(lab *l, vt_err *err)
{
    jit_ask ask;
    vt_cuda *base;
    TRY(lab_jit_ask(l, &ask, err));
    TRY(lab_jit_model(&ask, &base, err));
    tell_compiler(l, &ask);
    vt_status status = lab_jit_draw(
        l, "jit_cache", "a file for each kernel instance; one of each kernel is shown", err);
    if (status == VT_OK)
        status = tell_next_start(l, &ask, base->jit, err);
    if (status == VT_OK)
        status = tell_triggers(l, &ask, base->jit, err);
    if (status == VT_OK)
        status = check_kv(l, &ask, base->jit, err);
    if (status == VT_OK)
        status = turn_sizes(l, &ask, err);
    vt_cuda_close(base);
    tell_words(l);
    return status;
}

const lab_def lab_flashinfer_env = {
    .track = LAB_FLASHINFER,
    .number = "00",
    .name = "check_env",
    .goal = "You know which kernels are compiled on this machine already, and what makes the next "
            "start compile more.",
    .about = {"The kernels of a model are named, as at a start; no kernel is compiled or run.",
              "The cache of compiled kernels is listed, and each name is looked up by its key.",
              "Then settings change one by one, and the keys that change are counted."},
    .alias = {"00_check_env.py"},
    .knobs = {{"VITRINE_CACHE", LAB_RUNS, LAB_START, NULL,
               "compiled kernels are kept for the next start"},
              {"--max-running", LAB_OFFERED, LAB_START, "--max-running"}},
    .items = {{"jit_ready", "whether kernels can be compiled here, by what and for which GPU",
               false},
              {"jit_cache", "the cache of compiled kernels as a tree", false},
              {"next_start", "how many kernels the next start finds and how many it compiles",
               false},
              {"compile_triggers", "which change of a start makes which kernels new", false},
              {"never_and_always", "which other changes compile everything, one kernel or nothing",
               false}},
    .kernels = true, /* it runs none, and times nothing */
    .run = run,
};
