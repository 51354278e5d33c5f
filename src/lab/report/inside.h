/* Between the files that write reports (report.h).
 *
 * report.c loads the results and writes the pages; report/text.c has what every page uses; each
 * other file is one page or the two that belong together. A page is a function that appends to a
 * buffer and cannot fail otherwise than by the buffer's own flag. */
#ifndef VT_LAB_REPORT_INSIDE_H
#define VT_LAB_REPORT_INSIDE_H

#include <limits.h>

#include "lab/kit/lab.h"
#include "lab/report/causes.h"

/* From a page, labs/TRACK/reports/MACHINE/NAME.md, to what it links. */
#define TO_TRACK "../../"         /* labs/TRACK */
#define TO_LABS "../../../"       /* labs */
#define TO_SOURCES "../../../../" /* the folder that has labs, src and docs */

enum { REPORT_MAX_LABS = 24, REPORT_MAX_FILES = 24 };

/* A file that the experiments leave beside their results. */
typedef struct report_file {
    char name[64]; /* "baseline_benchmark.json" */
    json_t *json;  /* NULL: not there */
    vt_buf text;   /* of a text file */
} report_file;

typedef struct report {
    const vt_options *options;
    lab_track track;
    char machine[72];      /* the name of the folder */
    char folder[PATH_MAX]; /* of the results; no page names it */
    const lab_def *lab[REPORT_MAX_LABS];
    json_t *result[REPORT_MAX_LABS]; /* NULL: not run */
    int n, n_run, n_quick, n_disturbed, n_emulated;
    /* Those that the first result with roofs was measured against; l2_size and l3_size are of the
     * first result that has sizes of caches, 0: not known. */
    vt_roofs roofs;
    int64_t l1d_size;         /* of one core; 0: not known */
    bool caches_known;        /* a result says how large the device's caches are */
    const json_t *of_machine; /* the member "machine" of that result; NULL: no results */
    report_file file[REPORT_MAX_FILES];
    int n_files;
} report;

/* A page that a track has. */
typedef struct report_page {
    const char *name; /* "analysis.md" */
    const char *what; /* one line, for INDEX */
    void (*write)(const report *r, vt_buf *b);
    bool experiments; /* only the experiments have it */
} report_page;

extern const report_page report_pages[]; /* ends with name NULL */

/* Checks that the members that pages rely on are there, with their types; else VT_ERR_FORMAT. */
vt_status report_check_result(const char *folder, const lab_def *d, const json_t *result,
                              vt_err *err);

/* ---- report/text.c: what every page uses ---- */

/* The title, and the machine that the results are of. */
void report_head(const report *r, vt_buf *b, const char *title, const char *about);
/* The track whose lab 00 describes the machine: this one, or sglang where it has none. */
const char *report_env_track(const report *r);
/* "Caches: L1d 49.2 KB a core, L2 4.19 MB, L3 33.6 MB." or that they are not known; a paragraph. */
void report_caches(const report *r, vt_buf *b);
/* "not run here yet: `vitrine lab TRACK NN`" */
void report_not_run(const lab_def *d, vt_buf *b);
/* Text inside a cell of a table: '|' and line breaks cannot stand there. */
void report_cell(vt_buf *b, const char *text);
/* One item under its name; `def` says what it is. NULL in item: not told. */
void report_item(const json_t *item, const lab_item_def *def, vt_buf *b);
/* The value of an item in one line: a sentence, a number, a reason; false: a table or drawing. */
bool report_item_line(const json_t *item, vt_buf *b);
void report_table(const json_t *table, vt_buf *b);
void report_predictions(const json_t *result, vt_buf *b);
void report_checks(const json_t *result, vt_buf *b);
/* Findings about the lab's subject; those about the machine ("machine.busy") are left out: the
 * result's state says it. Returns how many. */
int report_findings(const json_t *result, vt_buf *b);
const json_t *report_first_finding(const json_t *result); /* NULL: none */
/* The result of the lab with this number; NULL: none. */
const json_t *report_result(const report *r, const char *number);
/* Makes all texts of a result safe to stand in a page, in place: no control of a terminal, no HTML,
 * no link. Drawings stay as they are but for controls. */
vt_status report_make_safe(json_t *value, bool drawing, vt_err *err);
/* The same of one text that is not in a result: the key of an object. */
void report_put_safe(vt_buf *b, const char *text);
/* Appends such a text inside a code block, where entities would be seen as they are written. */
void report_code(vt_buf *b, const char *text);
const char *report_string(const json_t *o, const char *key); /* "" where it is none */
double report_number(const json_t *o, const char *key);      /* NAN where it is none */

/* ---- report/catalogue.c: the kernels ---- */

typedef struct report_kernel {
    const char *op;      /* the card */
    const char *kernel;  /* the GPU kernel's file under src/ops; NULL: it runs on the host alone */
    const char *card;    /* the card's file there: it defines OP_op */
    const char *header;  /* the contract's file there */
    const char *args;    /* the struct of its arguments, in that header */
    const char *lab;     /* "mini-sglang 02" */
    const char *type;    /* "CUDA, compiled by NVRTC" */
    const char *peer[3]; /* what SGLang, Mini-SGLang and FlashInfer call it; NULL: not a kernel of
                            its own there */
} report_kernel;

extern const report_kernel report_kernels[]; /* ends with op NULL */
/* A table of the knobs that are about this kernel; NULL: of all. Returns how many. In
 * report/text.c. */
int report_knobs(const report *r, const report_kernel *about, vt_buf *b);
/* The noise of both sides of a knob together: what its verdict was made with. */
double report_noise(const json_t *knob);
/* Returns true if the noise is so large that "no gain here" says little: there may be a gain within
 * it. */
bool report_is_hidden(const json_t *knob);
/* "gains", or "no gain here, within a noise of 43 %". */
void report_verdict(const json_t *knob, vt_buf *b);
void report_catalogue(vt_buf *b);
/* Expected ranges from the roofs, a row a kernel and shape. */
void report_ranges(const report *r, vt_buf *b);

/* ---- report/cause_table.c: how to read a result ---- */

/* The rows of causes.h, each with the labs of these results that show it. */
void report_reading(const report *r, vt_buf *b);

/* ---- the pages ---- */

void report_index(const report *r, vt_buf *b);
void report_environment(const report *r, vt_buf *b);
void report_plan(const report *r, vt_buf *b);
void report_experiments(const report *r, vt_buf *b);
void report_analysis(const report *r, vt_buf *b);
void report_guide(const report *r, vt_buf *b);
void report_final(const report *r, vt_buf *b);
void report_key_findings(const report *r, vt_buf *b);

#endif
