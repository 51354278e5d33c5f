/* Lab flashinfer 06: what is compiled, when, how long it takes, and where it is kept.
 *
 * Works wherever NVRTC is found: compiling needs no GPU. The cold start takes place in a folder of
 * its own, which is removed at the end, so the user's cache stays as it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/run_delay.h"
#include "lab/flashinfer/flashinfer.h"
#include "lab/kernel/cache.h"
#include "lab/kit/jit_kernels.h"

/* ---- one start ---- */

typedef struct start {
    vt_cuda *cuda; /* its jit has the kernels */
    int32_t kernels, from_disk;
    double naming_s, wall_s, sum_s; /* sum_s: of the compilations alone */
    bool disturbed;
} start;

static bool count_cached(void *user, int32_t done, int32_t total, const char *name, double ms,
                         bool cached)
{
    (void)done, (void)total, (void)name, (void)ms;
    start *s = user;
    s->from_disk += cached;
    return true;
}

/* Names the kernels and compiles those that the cache does not have, with this many threads (0: as
 * an engine would). cache false: the disk is neither read nor written. */
static vt_status start_once(lab *l, const jit_ask *ask, bool whole, int32_t threads, bool cache,
                            start *out, vt_err *err)
{
    *out = (start){0};
    int64_t begin = vt_now_ns();
    TRY(whole ? lab_jit_model(ask, &out->cuda, err) : lab_jit_track(ask, &out->cuda, err));
    vt_jit_set_cache(out->cuda->jit, cache);
    int64_t named = vt_now_ns(), delay = vt_run_delay_ns();
    vt_status status = vt_jit_compile(out->cuda->jit, threads, count_cached, out, err);
    if (status != VT_OK) {
        vt_cuda_close(out->cuda);
        return status;
    }
    out->naming_s = (double)(named - begin) * 1e-9;
    out->wall_s = (double)(vt_now_ns() - named) * 1e-9;
    out->disturbed = (double)(vt_run_delay_ns() - delay) * 1e-9 > 0.02 * out->wall_s;
    out->kernels = vt_jit_count(out->cuda->jit);
    for (int32_t i = 0; i < out->kernels; i++)
        out->sum_s += vt_jit_get(out->cuda->jit, i)->compile_ms * 1e-3;
    lab_event(l, begin, "%d kernels are named; %d are compiled, %d come from disk", out->kernels,
              out->kernels - out->from_disk, out->from_disk);
    return VT_OK;
}

/* ---- what is told ---- */

static int slowest_first(const void *a, const void *b)
{
    double x = (*(const jit_cubin *const *)a)->compile_ms,
           y = (*(const jit_cubin *const *)b)->compile_ms;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* "hidden=1024 vec=8 ...": the template parameters of a name. */
static void put_parameters(vt_buf *b, const char *name)
{
    enum { INDENT = 4, WIDTH = 94 };
    vt_buf text = {0};
    const char *p = name + strcspn(name, "<");
    for (p += *p == '<'; *p && *p != '>'; p++)
        vt_buf_putc(&text, *p == ',' ? ' ' : *p);
    vt_buf_printf(b, "%.*s\n    ", (int)strcspn(name, "<"), name);
    vt_text_wrap(b, text.data ? text.data : "none", INDENT, WIDTH);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

static void tell_kernels(lab *l, const start *s)
{
    enum { SHOWN = 12 };
    const vt_jit *j = s->cuda->jit;
    const jit_cubin **by_time = calloc((size_t)s->kernels, sizeof *by_time);
    vt_buf parameters = {0};
    if (!by_time)
        return;
    for (int32_t i = 0; i < s->kernels; i++)
        by_time[i] = vt_jit_get(j, i);
    qsort(by_time, (size_t)s->kernels, sizeof *by_time, slowest_first);
    lab_table(l, "what_compiled", "the slowest first",
              "kernel|>compiled in|>registers|>spilled|>cubin");
    for (int32_t i = 0; i < s->kernels && i < SHOWN; i++) {
        int32_t k = 0;
        while (vt_jit_get(j, k) != by_time[i])
            k++;
        const char *name = vt_jit_name(j, k);
        put_parameters(&parameters, name);
        lab_cells(l, "%.*s|%f s|%d|%d B|%f B", (int)strcspn(name, "<"), name,
                  l->emulated ? NAN : by_time[i]->compile_ms * 1e-3, by_time[i]->registers,
                  by_time[i]->spill_bytes, (double)by_time[i]->size);
    }
    lab_drawing(l, "parameters",
                "in the same order; a kernel is compiled for exactly these numbers", &parameters);
    vt_buf_release(&parameters);
    free(by_time);
}

static void tell_times(lab *l, const start *cold, const start *warm)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    char took[32] = "";
    if (!l->emulated)
        snprintf(took, sizeof took, " in %.0f ms", cold->naming_s * 1e3);
    lab_item(l, "when",
             "at a start, never while a request waits: a dry run over all step sizes names the %d "
             "kernels%s, then up to 16 threads compile what the cache does not have, "
             "while the weights cross the bus. A launch of a kernel that the dry run did not name "
             "would compile on the spot; the tests hold the number of those at none",
             cold->kernels, took);
    if (l->emulated)
        lab_missing(l, "how_long", "the emulated GPU's compiler is the host's, not NVRTC");
    else
        lab_item(l, "how_long",
                 "%.2f s for %d kernels with %ld threads: %.2f s of compiling, %.1fx overlapped",
                 cold->wall_s, cold->kernels, cpus < 16 ? cpus : 16, cold->sum_s,
                 cold->sum_s / cold->wall_s);
    lab_table(l, "cold_warm", "the same start twice",
              "start|>kernels|>compiled|>from disk|>time|>a kernel");
    const start *row[] = {cold, warm};
    for (int i = 0; i < 2; i++) {
        lab_cells(l, "%s|%d|%d|%d", i == 0 ? "cold: empty folder" : "warm: the same again",
                  row[i]->kernels, row[i]->kernels - row[i]->from_disk, row[i]->from_disk);
        double wall_s = l->emulated ? NAN : row[i]->wall_s;
        lab_cells(l, "%f s|%f s", wall_s, wall_s / row[i]->kernels);
    }
    lab_check(l, cold->from_disk == 0, "the cold start found %d kernels in the empty folder",
              cold->from_disk);
    lab_check(l, warm->from_disk == warm->kernels,
              "the warm start took %d of %d kernels from the disk", warm->from_disk, warm->kernels);
}

static void tell_key(lab *l, vt_jit *j)
{
    vt_buf b = {0};
    char key[40];
    snprintf(key, sizeof key, "%s", vt_jit_key(j, 0));
    vt_buf_printf(
        &b,
        "kernel text ──────────┐\n"
        "all headers ──────────┤\n"
        "name of the entry ────┼── FNV-1a, 128 bits ──> %s ─┐\n"
        "compile options ──────┤                                                          │\n"
        "template parameters ──┤                                                          │\n"
        "architecture ─────────┘                                                          │\n"
        "NVRTC's version ─────────────────────────────────────────────────────────────────┤\n"
        "                                                                the file's name ─┘\n"
        "no part of it: time stamps, paths, the order of launches, values of tensors\n"
        "the key above is that of %.60s...\n",
        key, vt_jit_name(j, 0));
    lab_drawing(l, "key", "from top to bottom: what is hashed", &b);
    vt_buf_release(&b);
}

/* ---- invalidation: change something, look all kernels up again ---- */

/* A row of the table: how many kernels of this start the cache does not have. */
static vt_status tell_lookup(lab *l, const jit_ask *ask, bool whole, const char *what,
                             const char *why, int32_t least, int32_t most, vt_err *err)
{
    vt_cuda *c;
    int32_t ready;
    TRY(whole ? lab_jit_model(ask, &c, err) : lab_jit_track(ask, &c, err));
    vt_status status = vt_jit_read_cache(c->jit, &ready, err);
    int32_t n = vt_jit_count(c->jit), missing = n - ready;
    vt_cuda_close(c);
    TRY(status);
    lab_cells(l, "%s|%d of %d|%s", what, missing, n, why);
    bool ok = missing >= least && missing <= most;
    if (least == most)
        lab_check(l, ok, "%s: kernels compiled again: %d, expected %d", what, missing, least);
    else
        lab_check(l, ok, "%s: kernels compiled again: %d, expected %d or more", what, missing,
                  least);
    return VT_OK;
}

static vt_status tell_invalidation(lab *l, const jit_ask *ask, bool whole, const own_cache *own,
                                   int32_t n, vt_err *err)
{
    jit_ask page = *ask, arch = *ask;
    page.page_size = ask->page_size / 2;
    arch.arch = ask->level >= 90 ? "sm_80" : "sm_90a";
    arch.level = ask->level >= 90 ? 80 : 90;
    lab_table(l, "invalidation", "each change is made, then every kernel is looked up",
              "change|>compiled again|why");
    vt_status status = tell_lookup(l, ask, whole, "none", "every key is there", 0, 0, err);
    own_cache_make_old(own);
    if (status == VT_OK)
        status = tell_lookup(l, ask, whole, "the files' times are 1970", "time is no part of a key",
                             0, 0, err);
    if (status == VT_OK)
        status = tell_lookup(l, &page, whole, "pages of half the size",
                             "what walks pages has their size inside", 1, n - 1, err);
    if (status == VT_OK)
        status = tell_lookup(l, &arch, whole, "another architecture", "-arch is an option", 1,
                             INT32_MAX, err);
    own_cache_damage_one(own);
    if (status == VT_OK)
        status = tell_lookup(l, ask, whole, "one bit of one file flipped", "its checksum is wrong",
                             1, 1, err);
    own_cache_rename_one(own);
    if (status == VT_OK)
        status = tell_lookup(l, ask, whole, "that, and a file of another NVRTC",
                             "cubins of two compilers may differ", 2, 2, err);
    return status;
}

/* Reads what the user's own cache says about the time of these kernels; NAN: it has none of
 * them. */
static vt_status expected_s(const jit_ask *ask, bool whole, double *out, vt_err *err)
{
    vt_cuda *c;
    jit_file *file;
    int32_t n, known = 0;
    double ms = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    cuda_nvrtc nvrtc;
    TRY(cuda_nvrtc_open(&nvrtc, err));
    TRY(lab_jit_files(&file, &n, err));
    vt_status status = whole ? lab_jit_model(ask, &c, err) : lab_jit_track(ask, &c, err);
    for (int32_t i = 0; status == VT_OK && i < vt_jit_count(c->jit); i++)
        for (int32_t k = 0; k < n; k++)
            if (strcmp(file[k].name, vt_jit_name(c->jit, i)) == 0 &&
                strcmp(file[k].arch, ask->arch) == 0 && file[k].nvrtc_minor == nvrtc.minor) {
                ms += file[k].compile_ms;
                known++;
                break;
            }
    *out = NAN;
    if (status == VT_OK) {
        int32_t kernels = vt_jit_count(c->jit);
        double threads = cpus > 16 ? 16 : cpus > 0 ? (double)cpus : 1;
        threads = threads < kernels ? threads : kernels;
        if (known > 0)
            *out = ms * 1e-3 * kernels / known / threads;
        vt_cuda_close(c);
    }
    free(file);
    return status;
}

static void turn_cache(lab *l, const start *cold, const start *warm)
{
    lab_turn(l, &(lab_knob){.name = "cubin cache",
                            .where = "VITRINE_CACHE",
                            .what = "the kernels of a start",
                            .gain = NAN,
                            .before_s = cold->wall_s,
                            .after_s = warm->wall_s,
                            .why = "a file is read instead of a kernel compiled; before the run "
                                   "no byte count gives that time"});
}

/* Compiles all with one thread: what the threads gain. */
static vt_status turn_threads(lab *l, const jit_ask *ask, bool whole, const start *cold,
                              vt_err *err)
{
    start one;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(start_once(l, ask, whole, 1, false, &one, err));
    lab_turn(l, &(lab_knob){.name = "compiling threads",
                            .where = "1 against up to 16, one a CPU",
                            .what = "a cold start",
                            .gain = cpus > 16 ? 16 : (double)cpus,
                            .before_s = one.wall_s,
                            .after_s = cold->wall_s,
                            .why = "kernels are independent; the longest one is the floor, and "
                                   "NVRTC holds a lock in each of its stages"});
    vt_cuda_close(one.cuda);
    return VT_OK;
}

static vt_status measure(lab *l, const jit_ask *ask, bool whole, const own_cache *own, vt_err *err)
{
    start cold, warm;
    lab_note(l, "compiling %s into an empty folder",
             whole ? "all kernels of the model" : "this track's kernels");
    TRY(start_once(l, ask, whole, 0, true, &cold, err));
    lab_outcome(l, "time of the cold start", l->emulated ? NAN : cold.wall_s, cold.disturbed);
    vt_status status = start_once(l, ask, whole, 0, true, &warm, err);
    if (status == VT_OK) {
        tell_kernels(l, &cold);
        tell_times(l, &cold, &warm);
        status = lab_jit_draw(l, "cached_where", "the folder after the cold start", err);
        tell_key(l, cold.cuda->jit);
        turn_cache(l, &cold, &warm);
        vt_cuda_close(warm.cuda);
    }
    if (status == VT_OK && !l->quick)
        status = turn_threads(l, ask, whole, &cold, err);
    if (status == VT_OK)
        status = tell_invalidation(l, ask, whole, own, cold.kernels, err);
    vt_cuda_close(cold.cuda);
    return status;
}

static void tell_no_compiler(lab *l, const char *why)
{
    static const char *const key[] = {"what_compiled", "parameters",   "how_long",
                                      "cold_warm",     "cached_where", "invalidation"};
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        lab_missing(l, key[i], "nothing can be compiled: %s", why);
    lab_item(l, "when",
             "at a start, after a dry run has named every kernel; never while a request "
             "waits");
}

static vt_status run(lab *l, vt_err *err)
{
    cuda_nvrtc nvrtc;
    vt_err why = {0};
    jit_ask ask;
    own_cache own;
    bool whole = lab_flag(l, "cold");
    double expected;
    TRY(lab_jit_ask(l, &ask, err));
    if (cuda_nvrtc_open(&nvrtc, &why) != VT_OK) {
        vt_cuda *c;
        int64_t begin = vt_now_ns();
        TRY(lab_jit_track(&ask, &c, err));
        lab_event(l, begin, "%d kernels are named, and none is compiled", vt_jit_count(c->jit));
        tell_no_compiler(l, why.message);
        tell_key(l, c->jit);
        vt_cuda_close(c);
        lab_predict(l, "time of the cold start", NAN, VT_SECONDS, "there is no compiler");
        return VT_OK;
    }
    TRY(expected_s(&ask, whole, &expected, err));
    if (l->emulated)
        expected = NAN;
    lab_predict(l, "time of the cold start", expected, VT_SECONDS,
                l->emulated       ? "the emulated GPU's compiler is the host's, not NVRTC"
                : isnan(expected) ? "none of these kernels was ever compiled here"
                                  : "the compile times that this user's cache noted, over the "
                                    "threads");
    TRY(own_cache_make(&own, err));
    vt_status status = measure(l, &ask, whole, &own, err);
    own_cache_drop(&own);
    return status;
}

const lab_def lab_flashinfer_jit = {
    .track = LAB_FLASHINFER,
    .number = "06",
    .name = "jit_analysis",
    .goal = "You know what a first start compiles, why a second one does not, and what would make "
            "it compile again.",
    .about = {"The kernels of this track (with --cold: of the whole model) are compiled into an "
              "empty folder.",
              "The same start follows with the folder full: then the cubins are read from disk.",
              "Then one thing after the other is changed, and every kernel is looked up again."},
    .alias = {"06_jit_analysis.py"},
    .knobs = {{"VITRINE_CACHE", LAB_RUNS, LAB_START, NULL,
               "compiled kernels are kept for the next start"},
              {"compiling threads", LAB_RUNS, LAB_START, NULL,
               "kernels are compiled by many threads"}},
    .items = {{"what_compiled", "which kernels are compiled", false},
              {"parameters", "their template parameters", false},
              {"when", "when they are compiled", false},
              {"how_long", "how long it takes, and how far threads overlap", false},
              {"cached_where", "where the cubins are kept", false},
              {"cold_warm", "a cold start against a warm one", false},
              {"key", "what the key of a cubin is made of", false},
              {"invalidation", "what makes a cubin invalid", false}},
    .kernels = true, /* it compiles them, and runs none */
    .run = run,
};
