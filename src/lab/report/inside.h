/* Between the files that write reports (report.h).
 *
 * report.c loads the results; view.c, catalogue.c, gains.c, charts.c and view_files.c make the view
 * of them, in which every text and figure is; pages/NAME.jinja has the words of each page around
 * them, pages/shared.jinja macros that all pages use, and pages/findings.jinja sentences that are
 * made of several figures. html.c makes HTML of a page's markdown. */
#ifndef VT_LAB_REPORT_INSIDE_H
#define VT_LAB_REPORT_INSIDE_H

#include <limits.h>

#include "lab/kit/lab.h"
#include "lab/report/causes.h"

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
    /* Two labs of this machine that pages of other tracks tell of too, NULL: not run. Those of the
     * result's own track are copies. */
    json_t *flow; /* sglang 01: one request from arrival to its last token */
    json_t *pass; /* mini-sglang 06: the kernels of a step */
    report_file file[REPORT_MAX_FILES];
    int n_files;
} report;

/* A page that a track has. */
typedef struct report_page {
    const char *name; /* "analysis.md" */
    const char *what; /* one line, for INDEX */
    bool experiments; /* only the experiments have it */
} report_page;

extern const report_page report_pages[]; /* ends with name NULL */

/* Checks that the members that pages rely on are there, with their types; else VT_ERR_FORMAT. */
vt_status report_check_result(const char *folder, const lab_def *d, const json_t *result,
                              vt_err *err);

/* ---- report/text.c: texts of unknown origin ---- */

/* Text inside a cell of a table: '|' and line breaks cannot stand there. */
void report_cell(vt_buf *b, const char *text);
/* The result of the lab with this number; NULL: none. */
const json_t *report_result(const report *r, const char *number);
/* Makes all texts of a result safe to stand in a page, in place: no control of a terminal, no HTML,
 * no link. Drawings stay as they are but for controls. */
vt_status report_make_safe(json_t *value, bool drawing, vt_err *err);
/* The same of one text that is not in a result: the key of an object. */
void report_put_safe(vt_buf *b, const char *text);
const char *report_string(const json_t *o, const char *key); /* "" where it is none */
double report_number(const json_t *o, const char *key);      /* NAN where it is none */
/* Two standard deviations of the difference of both sides of a knob: a verdict needs more than
 * that. */
double report_noise(const json_t *knob);
/* Returns true if the noise is so large that "no gain here" says little: there may be a gain within
 * it. */
bool report_is_hidden(const json_t *knob);
/* "gains", or "no gain here, within a noise of 43 %". */
void report_verdict(const json_t *knob, vt_buf *b);

/* ---- report/catalogue.c: the kernels ---- */

typedef struct report_kernel {
    const char *op; /* the card */
    /* The GPU kernel's file under src/ops, and after a colon its function where that has not the
     * file's name; NULL: it runs on the host alone. */
    const char *kernel;
    const char *card;    /* the card's file there: it defines OP_op */
    const char *header;  /* the contract's file there */
    const char *args;    /* the struct of its arguments, in that header */
    const char *lab;     /* "mini-sglang 02" */
    const char *type;    /* "CUDA, compiled by NVRTC" */
    const char *peer[3]; /* what SGLang, Mini-SGLang and FlashInfer call it; NULL: not a kernel of
                            its own there */
} report_kernel;

extern const report_kernel report_kernels[]; /* ends with op NULL */

/* ---- report/view.c: what the templates see ---- */

/* The variables of every page of a track; NULL: out of memory. */
json_t *report_view(const report *r);
/* The value of an item in one line: a sentence, a number, a reason; false: a table or drawing. */
bool report_item_line(const json_t *item, vt_buf *b);
/* A number with its unit; null: it is none. */
json_t *report_figure(double v, vt_unit unit);
json_t *report_text(vt_buf *b); /* and releases it; NULL: out of memory */
/* Appends a value, which the list owns then; NULL and nothing left where either is NULL. */
json_t *report_append(json_t *list, json_t *value);
/* The kernels, each with the knobs that are about it. In report/catalogue.c. */
json_t *report_view_kernels(const report *r, const json_t *knobs);
/* Adds expected ranges from the roofs, a row a kernel and shape; false: out of memory. In
 * report/catalogue.c. */
bool report_view_ranges(const report *r, json_t *view);
/* Adds the parts of a step, and to each knob what it is worth to the whole; false: out of memory.
 * In report/gains.c. */
bool report_view_gains(const report *r, json_t *view);
/* Tables of a result as bars: a list of at most two. In report/charts.c. */
json_t *report_view_charts(const lab_def *d, const json_t *result);
/* The events of a lab as a timeline, of many the first and the last ones; null: the result has
 * none. It has no backtick, so that a fence of three encloses it. In report/charts.c. */
json_t *report_view_events(const json_t *result);
/* Adds what the files of the experiments tell; false: out of memory. In report/view_files.c. */
bool report_view_files(const report *r, json_t *view);

/* A page of markdown, of n bytes, as a page of HTML. In report/html.c. */
void report_html(const char *markdown, size_t n, vt_buf *b);
/* Writes a page from its template, pages/NAME.jinja, and the view. */
vt_status report_write_page(const report_page *page, json_t *view, vt_buf *b, vt_err *err);

#endif
