/* Counters of one kernel, read by ncu (ncu_run.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/plain_file.h"
#include "device/cupti/stalls.h"
#include "lab/profilers/ncu_csv.h"
#include "lab/profilers/ncu_run.h"
#include "lab/sglang/inside.h"

enum { LIMIT_S = 300, SECTOR = 32 };

/* ncu's names of what lab_counters holds, in the order of its members. */
enum {
    TIME,
    DRAM,
    L2_SECTORS,
    L2_HITS,
    OCCUPANCY,
    SM_BUSY,
    CONFLICTS,
    TENSOR,
    ISSUE,
    INSTRUCTIONS,
    N_METRICS
};

static const char *const metric[N_METRICS] = {
    [TIME] = "gpu__time_duration.sum",
    [DRAM] = "dram__bytes.sum",
    [L2_SECTORS] = "lts__t_sectors.sum",
    [L2_HITS] = "lts__t_sector_hit_rate.pct",
    [OCCUPANCY] = "sm__warps_active.avg.pct_of_peak_sustained_active",
    [SM_BUSY] = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    [CONFLICTS] = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    [TENSOR] = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    [ISSUE] = "smsp__issue_active.avg.pct_of_peak_sustained_active",
    [INSTRUCTIONS] = "smsp__inst_executed.sum"};

/* The first of the reasons tell most. */
const char *lab_ncu_stall_name(int32_t i) { return vt_stalls[i].name; }
const char *lab_ncu_stall_meaning(int32_t i) { return vt_stalls[i].meaning; }

static void stall_metric(int32_t i, char out[96])
{
    snprintf(out, 96, "smsp__average_warps_issue_stalled_%s_per_issue_active.ratio",
             vt_stalls[i].name);
}

/* ---- running ncu ---- */

void lab_ncu_metrics(vt_buf *b)
{
    char name[96];
    for (int i = 0; i < N_METRICS; i++)
        vt_buf_printf(b, "%s%s", i ? "," : "", metric[i]);
    for (int i = 0; i < LAB_NCU_STALLS; i++) {
        stall_metric(i, name);
        vt_buf_printf(b, ",%s", name);
    }
}

vt_status lab_ncu_failed(int exit_status, const char *log, vt_err *err)
{
    static const char mark[] = "==ERROR== ";
    char line[300], said[300] = "";
    FILE *f = fopen(log, "r");
    while (f && !said[0] && fgets(line, sizeof line, f))
        if (strncmp(line, mark, sizeof mark - 1) == 0) {
            line[strcspn(line, "\n")] = '\0';
            vt_text_clean_line(line);
            snprintf(said, sizeof said, "%s", line + sizeof mark - 1);
        }
    if (f)
        fclose(f);
    return vt_fail(err, VT_ERR_UNSUPPORTED, "ncu ended with status %d: %s (see %s)", exit_status,
                   said[0] ? said
                           : "counters may need the administrator's leave on this machine, and "
                             "one program at a time reads them",
                   log);
}

static vt_status run_ncu(lab *l, const lab_kernel_ask *ask, const char *part, const char *csv,
                         vt_err *err)
{
    enum { MOST = 40 };
    char device[16], filter[96], self[SGLANG_PATH];
    const char *argv[MOST];
    vt_buf metrics = {0};
    int n = 0, exit_status = 0;
    lab_ncu_metrics(&metrics);
    snprintf(device, sizeof device, "cuda:%d", l->ordinal);
    snprintf(filter, sizeof filter, "regex:%s", part);
    const char *const always[] = {"ncu",
                                  "--csv",
                                  "--page",
                                  "raw",
                                  "--print-units",
                                  "base",
                                  "--clock-control",
                                  "none",
                                  "--cache-control",
                                  "none",
                                  "--kernel-name",
                                  filter,
                                  "--launch-count",
                                  "4",
                                  "--metrics",
                                  metrics.data ? metrics.data : "",
                                  "--log-file",
                                  csv,
                                  sglang_self(self),
                                  "bench",
                                  "kernels",
                                  ask->op,
                                  "--device",
                                  device,
                                  "--shape",
                                  ask->shape,
                                  "--reps",
                                  "1"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        argv[n++] = always[i];
    if (ask->impl) {
        argv[n++] = "--variants";
        argv[n++] = "--impl";
        argv[n++] = ask->impl;
    }
    argv[n] = NULL;
    vt_status status = lab_tool_writes(csv, err);
    if (status == VT_OK)
        status = lab_tool_run(l, argv, NULL, LIMIT_S, &exit_status, err);
    vt_buf_release(&metrics);
    return status == VT_OK && exit_status != 0 ? lab_ncu_failed(exit_status, csv, err) : status;
}

vt_status lab_ncu_read_csv(const char *path, ncu_report *out, vt_err *err)
{
    vt_buf text;
    if (access(path, F_OK) != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "ncu left no file %s", path);
    TRY(vt_read_whole(path, NCU_MAX_BYTES, &text, err));
    vt_status status = ncu_report_read(path, text.data ? text.data : "", text.len, out, err);
    vt_buf_release(&text);
    return status;
}

void lab_ncu_take(const lab *l, const ncu_report *r, int32_t at, lab_counters *out)
{
    double v[N_METRICS];
    char name[96];
    const char *kernel = ncu_report_text(r, at, "Kernel Name");
    for (int i = 0; i < N_METRICS; i++)
        v[i] = ncu_report_number(r, at, metric[i]);
    *out = (lab_counters){.time_s = v[TIME],
                          .dram_bytes = v[DRAM],
                          .l2_bytes = v[L2_SECTORS] * SECTOR,
                          /* hits and sectors are counted in passes of their own */
                          .l2_hits = v[L2_HITS] > 1 ? 1 : v[L2_HITS],
                          .occupancy = v[OCCUPANCY],
                          .sm_busy = v[SM_BUSY],
                          .bank_conflicts = v[CONFLICTS],
                          .tensor = v[TENSOR],
                          .issue = v[ISSUE],
                          .instructions = v[INSTRUCTIONS]};
    out->signs = lab_signs_none();
    lab_signs_add_ncu(&out->signs, r, at, l->roofs.memory_bytes_per_s);
    snprintf(out->kernel, sizeof out->kernel, "%s", kernel ? kernel : "kernel");
    for (int i = 0; i < LAB_NCU_STALLS; i++) {
        stall_metric(i, name);
        out->stall[i] = ncu_report_number(r, at, name);
        out->stalled += isfinite(out->stall[i]) ? out->stall[i] : 0;
        if (isfinite(out->stall[i]) && !(out->stall[out->largest] >= out->stall[i]))
            out->largest = i;
    }
}

const char *lab_ncu_why_not(lab *l)
{
    char found[1024];
    if (!lab_flag(l, "ncu"))
        return l->ordinal < 0 ? "a CPU gives no counters of this kind to this program (tier T0)"
                              : "--ncu was not given: it runs the kernel under NVIDIA's ncu";
    if (!lab_tool_find("ncu", found, sizeof found))
        return "no program ncu is on PATH; it comes with CUDA's tools";
    return l->ordinal < 0 ? "ncu sees GPUs alone, and the lab runs on the CPU" : NULL;
}

bool lab_ncu_read(lab *l, const lab_kernel_ask *ask, const char *part, const char *csv,
                  lab_counters *out, char why[LAB_NCU_WHY])
{
    char path[1100];
    ncu_report r = {0};
    vt_err err;
    const char *no = lab_ncu_why_not(l);
    if (no) {
        snprintf(why, LAB_NCU_WHY, "%s", no);
        return false;
    }
    snprintf(path, sizeof path, "%s/%s", l->results, csv);
    vt_status status = run_ncu(l, ask, part, path, &err);
    if (status == VT_OK)
        status = lab_ncu_read_csv(path, &r, &err);
    int32_t at = status == VT_OK ? ncu_report_find(&r, part) : -1;
    if (status != VT_OK)
        snprintf(why, LAB_NCU_WHY, "%s", err.message);
    else if (at < 0)
        snprintf(why, LAB_NCU_WHY, "ncu saw no kernel whose name holds '%s'", part);
    else {
        lab_file(l, csv, "every counter that ncu read, a line for each launch");
        lab_ncu_take(l, &r, at, out);
        l->counted = true;
    }
    ncu_report_release(&r);
    return status == VT_OK && at >= 0;
}

/* ---- telling ---- */

void lab_ncu_stalls(lab *l, const char *key, const lab_counters *c)
{
    if (!(c->stalled > 0)) {
        lab_missing(l, key, "ncu's file has no stall reason of this kernel");
        return;
    }
    lab_table(l, key,
              "Warps that wait, between two instructions that are issued; share of "
              "those named here",
              "reason|>warps|>share|meaning");
    for (int i = 0; i < LAB_NCU_STALLS; i++) {
        if (!isfinite(c->stall[i]))
            continue;
        lab_cells(l, "%s|%.2f|%f share|%s", vt_stalls[i].name, c->stall[i],
                  c->stall[i] / c->stalled, vt_stalls[i].meaning);
    }
    lab_finding(l, "stall.largest", "of the waits that ncu saw %.0f %% are %s: a warp that %s",
                100 * c->stall[c->largest] / c->stalled, vt_stalls[c->largest].name,
                vt_stalls[c->largest].meaning);
}

void lab_ncu_put_stalls(vt_buf *t, const lab_counters *c, int most)
{
    static const double worth_a_word = 0.05;
    bool told[LAB_NCU_STALLS] = {false};
    if (!(c->stalled > 0))
        vt_buf_puts(t, "ncu's file has no stall reason of this kernel");
    for (int n = 0; n < most; n++) {
        int32_t top = -1;
        for (int32_t i = 0; i < LAB_NCU_STALLS; i++)
            if (!told[i] && isfinite(c->stall[i]) && (top < 0 || c->stall[i] > c->stall[top]))
                top = i;
        if (top < 0 || c->stall[top] < worth_a_word * c->stalled)
            break;
        told[top] = true;
        vt_text_printf(t, "%s%s %f share: %s", n ? "; " : "", lab_ncu_stall_name(top),
                       c->stall[top] / c->stalled, lab_ncu_stall_meaning(top));
    }
}

static void put_counter(lab *l, const char *name, double v, double want, vt_unit unit,
                        const char *meaning)
{
    lab_cell(l, "%s", name);
    lab_cell_number(l, v, unit);
    lab_cell_number(l, want, unit);
    lab_cell(l, "%s", meaning);
}

void lab_ncu_counters(lab *l, const char *key, const lab_counters *c, const lab_kernel *k)
{
    char title[300];
    snprintf(title, sizeof title, "%.120s, read by ncu", c->kernel);
    lab_table(l, key, title, "counter|>read|>expected|meaning");
    put_counter(l, "time under ncu", c->time_s, k ? k->median_s : NAN, VT_SECONDS,
                "longer than in a graph: ncu runs launches one by one");
    put_counter(l, "bytes from and to memory", c->dram_bytes, k ? k->bytes : NAN, VT_BYTES,
                "beside the bytes that the shape needs: fewer are L2 hits");
    put_counter(l, "bytes asked of L2", c->l2_bytes, k ? k->bytes : NAN, VT_BYTES,
                "in sectors of 32 bytes: more than the shape needs are sectors used in part");
    put_counter(l, "L2 hits", c->l2_hits, NAN, VT_SHARE,
                "of the sectors asked for; 100 % at most: ncu counts hits and sectors in runs of "
                "their own, which differ a little");
    put_counter(l, "achieved occupancy", c->occupancy, k ? k->occupancy : NAN, VT_SHARE,
                "of an SM's warps; below the computed one: a tail, or uneven work");
    put_counter(l, "matrix unit busy", c->tensor, NAN, VT_SHARE,
                "of the cycles in which the SM worked");
    put_counter(l, "schedulers issue", c->issue, NAN, VT_SHARE,
                "of the cycles; the rest, no warp was ready");
    put_counter(l, "instructions", c->instructions, NAN, VT_COUNT, "executed, counted by warps");
    put_counter(l, "SMs busy", c->sm_busy, NAN, VT_SHARE,
                "of the time, over all SMs; the rest, an SM had no warp: too few CTAs, or a tail");
    put_counter(l, "bank conflicts", c->bank_conflicts, 0, VT_COUNT,
                "accesses of shared memory that had to be made one after the other");
}

bool lab_ncu_item(lab *l, const lab_kernel_ask *ask, const char *part, const char *csv,
                  const char *key, lab_counters *c)
{
    char why[LAB_NCU_WHY];
    if (!lab_ncu_read(l, ask, part, csv, c, why)) {
        lab_missing(l, key, "%s", why);
        return false;
    }
    lab_ncu_stalls(l, key, c);
    return true;
}
