/* Lab sglang 05 --ncu: counters of one kernel, read by ncu, which belongs to CUDA's tools.
 *
 * ncu runs `vitrine bench kernels` on the shape, stops at each launch, and replays the kernel as
 * often as it needs for all counters. Clocks are left as they are and caches are kept warm, so that
 * the kernel is the one that the lab timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/causes.h"
#include "lab/ncu_csv.h"
#include "lab/sglang_attention.h"
#include "lab/sglang_inside.h"

enum { LIMIT_S = 300 };

typedef struct counter {
    const char *metric, *name;
    lab_unit unit;
    const char *meaning;
} counter;

static const counter counters[] = {
    {"gpu__time_duration.sum", "time under ncu", LAB_SECONDS,
     "longer than in a graph: ncu runs "
     "launches one by one"},
    {"dram__bytes.sum", "bytes from and to memory", LAB_BYTES,
     "beside the bytes that the shape "
     "needs: fewer are L2 hits"},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", "achieved occupancy", LAB_SHARE,
     "of an SM's warps; below the computed one: a tail, or uneven work"},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "matrix unit busy",
     LAB_SHARE, "of the cycles in which the SM worked"},
    {"smsp__issue_active.avg.pct_of_peak_sustained_active", "schedulers issue", LAB_SHARE,
     "of the cycles; the rest, no warp was ready"},
    {"lts__t_sector_hit_rate.pct", "L2 hits", LAB_SHARE, "of the sectors asked for"}};

#define STALL(reason) "smsp__average_warps_issue_stalled_" reason "_per_issue_active.ratio"

static const counter stalls[] = {
    {STALL("long_scoreboard"), "long_scoreboard", LAB_COUNT, "waits for data from memory or L2"},
    {STALL("short_scoreboard"), "short_scoreboard", LAB_COUNT,
     "waits for shared memory or a special unit"},
    {STALL("barrier"), "barrier", LAB_COUNT, "waits for other warps of its CTA"},
    {STALL("math_pipe_throttle"), "math_pipe_throttle", LAB_COUNT,
     "its unit is busy: good in a matrix product"},
    {STALL("wait"), "wait", LAB_COUNT, "the fixed time between two dependent instructions"},
    {STALL("mio_throttle"), "mio_throttle", LAB_COUNT, "the queue to shared memory is full"},
    {STALL("lg_throttle"), "lg_throttle", LAB_COUNT, "the queue to memory is full"},
    {STALL("gmma"), "gmma", LAB_COUNT, "waits for a product of the matrix unit (Hopper)"},
    {STALL("not_selected"), "not_selected", LAB_COUNT, "is ready, another warp was taken: healthy"},
    {STALL("no_instruction"), "no_instruction", LAB_COUNT, "waits for instructions"}};

enum {
    N_COUNTERS = sizeof counters / sizeof counters[0],
    N_STALLS = sizeof stalls / sizeof stalls[0]
};

/* ---- running ncu ---- */

static void list_metrics(vt_buf *b)
{
    for (int i = 0; i < N_COUNTERS + N_STALLS; i++)
        vt_buf_printf(b, "%s%s", i ? "," : "",
                      i < N_COUNTERS ? counters[i].metric : stalls[i - N_COUNTERS].metric);
}

static vt_status run_ncu(lab *l, const char *op, const char *shape, const char *csv, vt_err *err)
{
    char device[16], self[SGLANG_PATH];
    vt_buf metrics = {0};
    int exit_status = 0;
    list_metrics(&metrics);
    snprintf(device, sizeof device, "cuda:%d", l->ordinal);
    const char *const argv[] = {"ncu",
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
                                "regex:attention",
                                "--launch-count",
                                "4",
                                "--metrics",
                                metrics.data ? metrics.data : "",
                                "--log-file",
                                csv,
                                sglang_self(self),
                                "bench",
                                "kernels",
                                op,
                                "--device",
                                device,
                                "--shape",
                                shape,
                                "--reps",
                                "1",
                                NULL};
    vt_status status = lab_tool_run(l, argv, NULL, LIMIT_S, &exit_status, err);
    vt_buf_release(&metrics);
    if (status == VT_OK && exit_status != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "ncu ended with status %d: counters may need the administrator's leave on "
                       "this machine (see %s)",
                       exit_status, csv);
    return status;
}

static vt_status read_csv(const char *path, ncu_report *out, vt_err *err)
{
    vt_buf text;
    vt_buf_init(&text, NCU_MAX_BYTES);
    char block[65536];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "ncu left no file %s", path);
    while ((n = fread(block, 1, sizeof block, f)) > 0 && vt_buf_add(&text, block, n))
        continue;
    fclose(f);
    vt_status status = text.failed
                           ? vt_fail(err, VT_ERR_MEMORY, "%s: more than %d bytes", path,
                                     NCU_MAX_BYTES)
                           : ncu_report_read(path, text.data ? text.data : "", text.len, out, err);
    vt_buf_release(&text);
    return status;
}

/* ---- telling ---- */

static void tell_counters(lab *l, const ncu_report *r, int32_t at, const lab_kernel *k)
{
    char title[300];
    const char *name = ncu_report_text(r, at, "Kernel Name");
    snprintf(title, sizeof title, "%.120s, read by ncu", name ? name : "kernel");
    lab_table(l, "counters", title, "counter|>read|>expected|meaning");
    for (int i = 0; i < N_COUNTERS; i++) {
        double v = ncu_report_number(r, at, counters[i].metric), want = NAN;
        if (k && strcmp(counters[i].metric, "dram__bytes.sum") == 0)
            want = k->bytes;
        else if (k && i == 0)
            want = k->median_s;
        else if (k && strncmp(counters[i].metric, "sm__warps", 9) == 0)
            want = k->occupancy;
        lab_cell(l, "%s", counters[i].name);
        lab_cell_number(l, v, counters[i].unit);
        lab_cell_number(l, want, counters[i].unit);
        lab_cell(l, "%s", counters[i].meaning);
    }
    lab_table_end(l);
}

static void tell_stalls(lab *l, const ncu_report *r, int32_t at)
{
    double sum = 0, v[N_STALLS];
    int largest = 0;
    for (int i = 0; i < N_STALLS; i++) {
        v[i] = ncu_report_number(r, at, stalls[i].metric);
        sum += isfinite(v[i]) ? v[i] : 0;
        if (isfinite(v[i]) && !(v[largest] >= v[i]))
            largest = i;
    }
    if (!(sum > 0)) {
        lab_missing(l, "stalls", "ncu's file has no stall reason of this kernel");
        return;
    }
    lab_table(l, "stalls",
              "Warps that wait, between two instructions that are issued; share of "
              "those named here",
              "reason|>warps|>share|meaning");
    for (int i = 0; i < N_STALLS; i++) {
        if (!isfinite(v[i]))
            continue;
        lab_cell(l, "%s", stalls[i].name);
        lab_cell(l, "%.2f", v[i]);
        lab_cell_number(l, v[i] / sum, LAB_SHARE);
        lab_cell(l, "%s", stalls[i].meaning);
    }
    lab_table_end(l);
    lab_finding(l, "stall.largest", "of the waits that ncu saw %.0f %% are %s: a warp that %s",
                100 * v[largest] / sum, stalls[largest].name, stalls[largest].meaning);
}

static void both_missing(lab *l, const char *why)
{
    lab_missing(l, "stalls", "%s", why);
    lab_missing(l, "counters", "%s", why);
}

vt_status sglang_ncu(lab *l, const char *op, const char *shape, const lab_kernel *k, vt_err *err)
{
    char found[1024], csv[1100];
    ncu_report r = {0};
    vt_err why;
    (void)err;
    if (!lab_flag(l, "ncu")) {
        both_missing(l, l->ordinal < 0 ? "a CPU gives no stall reasons to this program (tier T0)"
                                       : "--ncu was not given: it runs the kernel under ncu");
        return VT_OK;
    }
    if (!lab_tool_find("ncu", found, sizeof found)) {
        both_missing(l, "no program ncu is on PATH; it comes with CUDA's tools");
        return VT_OK;
    }
    if (l->ordinal < 0) {
        both_missing(l, "ncu sees GPUs alone, and the lab runs on the CPU");
        return VT_OK;
    }
    snprintf(csv, sizeof csv, "%s/ncu_attention.csv", l->results);
    vt_status status = run_ncu(l, op, shape, csv, &why);
    if (status == VT_OK)
        status = read_csv(csv, &r, &why);
    int32_t at = status == VT_OK ? ncu_report_find(&r, "attention") : -1;
    if (status != VT_OK)
        both_missing(l, why.message);
    else if (at < 0)
        both_missing(l, "ncu saw no kernel whose name holds 'attention'");
    else {
        lab_file(l, "ncu_attention.csv", "every counter that ncu read, a line for each launch");
        tell_counters(l, &r, at, k);
        tell_stalls(l, &r, at);
        lab_signs signs = k ? lab_signs_kernel(l, k) : lab_signs_none();
        lab_signs_add_ncu(&signs, &r, at, l->roofs.memory_bytes_per_s);
        lab_tell_causes(l, &signs, "the kernel that ncu saw");
    }
    ncu_report_release(&r);
    return VT_OK;
}
