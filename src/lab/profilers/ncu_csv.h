/* Reads what `ncu --csv --page raw` writes: a line of column names, a line of units, then a line
 * for each kernel launch. Lines before the names (ncu's own messages, the program's output) are
 * skipped.
 *
 *   "ID","Process ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"
 *   "","","","ns","byte"
 *   "0","4711","attention_decode","12,345","1048576"
 *
 * The text comes from another program, so every count is limited. */
#ifndef VT_LAB_PROFILERS_NCU_CSV_H
#define VT_LAB_PROFILERS_NCU_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vitrine.h"

enum { NCU_MAX_COLUMNS = 512, NCU_MAX_LAUNCHES = 4096, NCU_MAX_BYTES = 16 << 20 };

typedef struct ncu_report {
    char *text;      /* the fields, each NUL-terminated */
    uint32_t *field; /* [(n_launches + 2) * n_columns] offsets in text: names, units, rows */
    int32_t n_columns, n_launches;
} ncu_report;

/* `name` is used in messages. VT_ERR_FORMAT: there is no line of column names, or a line has
 * another number of fields; VT_ERR_MEMORY: beyond a limit above. ncu_report_release(out)
 * afterwards. */
vt_status ncu_report_read(const char *name, const char *text, size_t len, ncu_report *out,
                          vt_err *err);
/* The same of what `nsys stats --format csv` prints, which has no line of units: names, the first
 * of which is "Time (%)", then a line for each kernel or range. Its numbers are as nsys wrote
 * them. */
vt_status nsys_stats_read(const char *name, const char *text, size_t len, ncu_report *out,
                          vt_err *err);
void ncu_report_release(ncu_report *r);

/* The field of a launch in the column of this name; NULL: there is no such column. */
const char *ncu_report_text(const ncu_report *r, int32_t launch, const char *column);
/* The same as a number in base units (seconds, bytes, a share of 1 for per cent); NAN: there is
 * none, or it was not collected. */
double ncu_report_number(const ncu_report *r, int32_t launch, const char *column);
/* The newest launch whose kernel's name contains `part`; -1: none. */
int32_t ncu_report_find(const ncu_report *r, const char *part);

#endif
