/* Reads what the hardware did in each kernel of a model's steps, and why its warps waited.
 *
 * ncu runs the program once and reads its counters in two steps, which it finds by their NVTX
 * ranges: step 1, which computes the prompt, and step 3, a decode. Of each kernel and grid it reads
 * two launches, so that one run has every kernel:
 *
 *   launches, in order         calls of the story, in order
 *   rmsnorm (512,1,1)      ->  L00.rmsnorm.attn
 *   nvjet... (2,64,1)      ->  L00.linear.qkv      a library's kernel: the next call of the library
 *   rope (1024,1,1)        ->  L00.rope_store
 *   ...
 *   rmsnorm (1,1,1)        ->  rmsnorm.final       by its grid, for others were read already
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/choose.h"
#include "lab/profilers/ncu_run.h"
#include "lab/sglang/waits.h"
#include "story/read.h"

enum { LIMIT_S = 120, MOST_PROMPT = 2048, ROWS = 64, NAME = 128 };

static const char *const phase_name[] = {"prefill", "decode"};

/* ---- running ncu ---- */

static vt_status run_ncu(lab *l, int32_t n_prompt, const char *csv, vt_err *err)
{
    char device[16];
    int32_t *ids = NULL;
    int exit_status = 0;
    vt_buf metrics = {0}, tokens = {0};
    char self[SGLANG_PATH];
    n_prompt = n_prompt < MOST_PROMPT ? n_prompt : MOST_PROMPT;
    TRY(sglang_prompt(l, 99, NULL, 0, n_prompt, &ids, err));
    for (int32_t i = 0; i < n_prompt; i++)
        vt_buf_printf(&tokens, "%s%d", i ? "," : "", ids[i]);
    free(ids);
    lab_ncu_metrics(&metrics);
    vt_device_name(l->ordinal, device, sizeof device);
    const char *const argv[] = {"ncu",
                                "--csv",
                                "--page",
                                "raw",
                                "--print-units",
                                "base",
                                "--nvtx",
                                "--nvtx-include",
                                "regex:step [13]/",
                                "--filter-mode",
                                "per-launch-config",
                                "--launch-count",
                                "2",
                                "--clock-control",
                                "none",
                                "--cache-control",
                                "none",
                                "--metrics",
                                metrics.data,
                                "--log-file",
                                csv,
                                sglang_self(self),
                                "run",
                                "--model",
                                l->model,
                                "--device",
                                device,
                                "--kv-memory",
                                "512M",
                                "--tokens",
                                tokens.data,
                                "-n",
                                "5",
                                "--ignore-eos",
                                "--quiet",
                                NULL};
    vt_status status = metrics.failed || tokens.failed
                           ? vt_fail(err, VT_ERR_MEMORY, "out of memory for ncu's arguments")
                           : lab_tool_writes(csv, err);
    if (status == VT_OK)
        status = lab_tool_run(l, argv, NULL, LIMIT_S, &exit_status, err);
    vt_buf_release(&metrics);
    vt_buf_release(&tokens);
    return status == VT_OK && exit_status != 0 ? lab_ncu_failed(exit_status, csv, err) : status;
}

/* ---- which call a launch belongs to ---- */

/* A phase of the story as a list of calls. */
typedef struct listed {
    const json_t *ops, *labels, *us;
    size_t n, at; /* at: the first call that no launch was found for yet */
} listed;

/* The name of a call without its layer: "linear.qkv" of "L00.linear.qkv". */
static const char *kind_of(const listed *p, size_t i, char out[STORY_TEXT])
{
    story_clean(json_array_get(p->labels, i), out);
    const char *dot = strchr(out, '.');
    return out[0] == 'L' && out[1] >= '0' && out[1] <= '9' && dot ? dot + 1 : out;
}

static const json_t *op_of(const listed *p, const char *kind)
{
    const json_t *op;
    size_t i;
    char text[STORY_TEXT];
    json_array_foreach((json_t *)(uintptr_t)p->ops, i,
                       op) if (strcmp(story_text(op, "kind", text), kind) == 0) return op;
    return NULL;
}

static void list_phase(const json_t *story, const char *name, listed *out)
{
    const json_t *p;
    size_t i;
    char text[STORY_TEXT];
    *out = (listed){.ops = story_get(story_phase_named(story, name), "ops"),
                    .labels = story_get(story_get(story, "calls"), "labels")};
    json_array_foreach((json_t *)(uintptr_t)story_get(story_get(story, "typical"), "phases"), i,
                       p) if (strcmp(story_text(p, "name", text), name) == 0) out->us = p;
    static const char *const column[] = {"us", NULL};
    size_t rows = story_rows(out->us, column), labels = json_array_size(out->labels);
    out->n = rows < labels ? rows : labels;
}

/* The function of a kernel's name in a story: "gemm_sm90" of "gemm_sm90<bn=128>". */
static bool is_function(const json_t *kernel, const char *function)
{
    char name[STORY_TEXT];
    story_text(kernel, "name", name);
    size_t n = strcspn(name, "<");
    return n == strlen(function) && strncmp(name, function, n) == 0;
}

/* Counts the ops of the phase that launch this function. */
static int32_t users_of(const listed *p, const char *function)
{
    const json_t *op, *k;
    size_t i, j;
    int32_t n = 0;
    json_array_foreach((json_t *)(uintptr_t)p->ops, i, op)
    {
        bool uses = false;
        json_array_foreach((json_t *)(uintptr_t)story_get(op, "kernels"), j, k)
            uses |= is_function(k, function);
        n += uses;
    }
    return n;
}

static bool same_grid(const json_t *kernel, const int32_t grid[3])
{
    const json_t *g = story_get(story_get(kernel, "launch"), "grid");
    for (size_t i = 0; i < 3; i++)
        if (json_number_value(json_array_get(g, i)) != grid[i])
            return false;
    return true;
}

/* Returns true if the launch can be this op's: by its function and, where several ops have that
 * function, its grid; a function that is no op's is a library's. */
static bool fits(const json_t *op, const char *function, const int32_t grid[3], int32_t users)
{
    const json_t *k;
    size_t i;
    char impl[STORY_TEXT];
    if (users == 0)
        return strcmp(story_text(op, "impl", impl), "cublaslt") == 0;
    json_array_foreach((json_t *)(uintptr_t)story_get(op, "kernels"), i,
                       k) if (is_function(k, function) &&
                              (users == 1 || same_grid(k, grid))) return true;
    return false;
}

/* Counts the ops of the phase that launch this function with this grid. */
static int32_t alike(const listed *p, const char *function, const int32_t grid[3])
{
    const json_t *op;
    size_t i;
    int32_t n = 0;
    json_array_foreach((json_t *)(uintptr_t)p->ops, i, op) n += fits(op, function, grid, 2);
    return n;
}

/* Finds the launch's call at or behind the first open one; before any was found only the first
 * call counts, so that what a library tries at its start is passed over. */
static bool find_call(listed *p, const char *function, const int32_t grid[3], char kind[STORY_TEXT])
{
    int32_t users = users_of(p, function);
    /* where the grid does not tell ops apart, only the very next call can be meant */
    bool next_alone = users > 1 && alike(p, function, grid) > 1;
    char text[STORY_TEXT];
    for (size_t i = p->at; i < p->n; i++) {
        if (!isfinite(story_cell(p->us, "us", i)))
            continue;
        const char *is = kind_of(p, i, text);
        const json_t *op = op_of(p, is);
        if (op && fits(op, function, grid, users)) {
            snprintf(kind, STORY_TEXT, "%s", is);
            p->at = i + 1;
            return true;
        }
        if (p->at == 0 || next_alone)
            return false;
    }
    return false;
}

/* ---- the table ---- */

static void put_launch(lab *l, const char *phase, const char *kind, const lab_counters *c)
{
    vt_buf waits = {0};
    lab_ncu_put_stalls(&waits, c, 2);
    lab_cells(l, "%s|%s|%.40s|%f s|%f share|%f share|%f share|%f share|%f share|%s", phase, kind,
              c->kernel, c->time_s, c->sm_busy, c->tensor,
              c->dram_bytes / c->time_s / l->roofs.memory_bytes_per_s, c->l2_hits, c->occupancy,
              waits.data ? waits.data : "not counted");
    vt_buf_release(&waits);
}

/* "(2, 64, 1)" */
static void read_grid(const char *text, int32_t grid[3])
{
    grid[0] = grid[1] = grid[2] = 0;
    if (text)
        sscanf(text, "(%d, %d, %d)", &grid[0], &grid[1], &grid[2]);
}

int32_t sglang_tell_launches(lab *l, const json_t *story, const ncu_report *r)
{
    listed phase[2];
    char told[ROWS][NAME], kind[STORY_TEXT], row[NAME];
    int32_t n = 0, at = 0;
    for (int p = 0; p < 2; p++)
        list_phase(story, phase_name[p], &phase[p]);
    for (int32_t i = 0; i < r->n_launches && n < ROWS; i++) {
        const char *function = ncu_report_text(r, i, "Kernel Name");
        int32_t grid[3];
        lab_counters c;
        bool again = false;
        read_grid(ncu_report_text(r, i, "Grid Size"), grid);
        if (!function || (!find_call(&phase[at], function, grid, kind) &&
                          (at == 1 || !find_call(&phase[at = 1], function, grid, kind)))) {
            at = phase[1].at > 0;
            continue;
        }
        snprintf(row, sizeof row, "%d %.100s", at, kind);
        for (int32_t k = 0; k < n; k++)
            again |= strcmp(told[k], row) == 0;
        if (again)
            continue;
        snprintf(told[n++], sizeof told[0], "%s", row);
        lab_ncu_take(l, r, i, &c);
        if (n == 1)
            lab_table(l, "waits",
                      "A launch of each kernel of a prompt's step and of a decode step, counted by "
                      "ncu; memory: of its measured roof; waits: of the warps' waiting time",
                      "phase|op|kernel|>time under ncu|>SMs busy|>matrix unit|>memory|>L2 hits|"
                      ">occupancy|its warps wait");
        put_launch(l, phase_name[at], kind, &c);
    }
    return n;
}

void sglang_waits(lab *l, const json_t *story, int32_t n_prompt)
{
    static const char csv[] = "ncu_step.csv";
    char path[1100];
    vt_err err = {0};
    ncu_report r = {0};
    const char *no = lab_ncu_why_not(l);
    if (no) {
        lab_missing(l, "waits", "%s", no);
        return;
    }
    lab_note(l, "the same under ncu, which runs each kernel several times");
    snprintf(path, sizeof path, "%s/%s", l->results, csv);
    vt_status status = run_ncu(l, n_prompt, path, &err);
    if (status == VT_OK)
        status = lab_ncu_read_csv(path, &r, &err);
    if (status != VT_OK) {
        lab_missing(l, "waits", "%s", err.message);
    } else if (sglang_tell_launches(l, story, &r) == 0) {
        lab_missing(l, "waits", "ncu read %d launches, and none is of a call that the story names",
                    r.n_launches);
    } else {
        lab_file(l, csv, "every counter that ncu read, a line for each launch");
        l->counted = true;
    }
    ncu_report_release(&r);
}
