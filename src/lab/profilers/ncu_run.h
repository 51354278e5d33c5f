/* Counters of one kernel, read by NVIDIA's ncu (--ncu): `vitrine bench kernels` runs under ncu,
 * which writes a CSV (ncu_csv.h).
 *
 *     char why[LAB_NCU_WHY];
 *     lab_counters c;
 *     if (!lab_ncu_read(l, &(lab_kernel_ask){.op = "embed", .shape = "tokens=64"}, "embed",
 *                       "ncu_embed.csv", &c, why))
 *         lab_missing(l, "stalls", "%s", why);
 *     else
 *         lab_ncu_stalls(l, "stalls", &c);
 *
 * A counter that ncu did not deliver is NAN. */
#ifndef VT_LAB_PROFILERS_NCU_RUN_H
#define VT_LAB_PROFILERS_NCU_RUN_H

#include "lab/kit/lab.h"
#include "lab/report/causes.h"

enum { LAB_NCU_WHY = 512, LAB_NCU_STALLS = 10 };

typedef struct lab_counters {
    char kernel[200];
    double time_s;                /* under ncu, which runs launches one by one */
    double dram_bytes;            /* from and to memory */
    double l2_bytes;              /* asked of L2, in sectors of 32 bytes */
    double l2_hits, occupancy;    /* shares; the occupancy that was achieved */
    double sm_busy;               /* share of the time in which an SM had a warp, over all SMs */
    double bank_conflicts;        /* of loads and stores in shared memory */
    double tensor, issue;         /* shares of active cycles: matrix unit busy, schedulers issue */
    double instructions;          /* executed, a warp's counted once */
    double stall[LAB_NCU_STALLS]; /* warps that wait for each reason of lab_ncu_stall_name */
    double stalled;               /* their sum */
    int32_t largest;              /* index of the largest */
    lab_signs signs;              /* what these counters show, for lab_tell_causes */
} lab_counters;

/* Names and meanings of the stall reasons; index 0 is the wait for memory. */
const char *lab_ncu_stall_name(int32_t i);
const char *lab_ncu_stall_meaning(int32_t i);

/* Reads the counters of the call's kernel whose name contains `part`. The CSV stays in the lab's
 * results under this name. False: counters are not read here, and why (one clause). */
bool lab_ncu_read(lab *l, const lab_kernel_ask *ask, const char *part, const char *csv,
                  lab_counters *out, char why[LAB_NCU_WHY]);
/* The stall reasons with their meaning, as a table under this key; missing where ncu's file has
 * none. */
void lab_ncu_stalls(lab *l, const char *key, const lab_counters *c);
/* Appends the reasons that make up most of the waits, at most so many, the largest first, with
 * their meaning. */
void lab_ncu_put_stalls(vt_buf *t, const lab_counters *c, int most);
/* The other counters beside what is expected of `k` (may be NULL), as a table under this key. */
void lab_ncu_counters(lab *l, const char *key, const lab_counters *c, const lab_kernel *k);
/* lab_ncu_read, then the stalls as this item: the table, or missing with the reason. True: c is
 * filled. */
bool lab_ncu_item(lab *l, const lab_kernel_ask *ask, const char *part, const char *csv,
                  const char *key, lab_counters *c);

/* ---- for other files that run ncu ---- */

/* Returns why ncu cannot be started here; NULL: it can. */
const char *lab_ncu_why_not(lab *l);
/* Appends the metrics that lab_counters is made of, with commas between them. */
void lab_ncu_metrics(vt_buf *b);
/* Fails as ncu did: its exit status, and the first error in the log that it left. */
vt_status lab_ncu_failed(int exit_status, const char *log, vt_err *err);
/* Reads the CSV that ncu left; ncu_report_release(out) afterwards. */
vt_status lab_ncu_read_csv(const char *path, ncu_report *out, vt_err *err);
/* Fills in the counters of launch `at`. */
void lab_ncu_take(const lab *l, const ncu_report *r, int32_t at, lab_counters *out);

#endif
