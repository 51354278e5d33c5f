/* A story as sections of rows of cells: what is shown and in which words, but not how it is drawn.
 *
 *   story.json ── page*.c ──> sections, rows, cells ── term.c ──> a terminal
 *
 * A section has a heading and rows. A row has a kind, which says what its cells are:
 *
 *   PAGE_TITLE    what the page is about | the rest of its title
 *   PAGE_TEXT     a paragraph
 *   PAGE_LINE     a short line
 *   PAGE_LABEL    a heading of its own | a paragraph
 *   PAGE_ITEM     name | text
 *   PAGE_MORE     text, which belongs to the item above it
 *   PAGE_SERIES   name | series | text | note (or only the first three)
 *   PAGE_SPAN     name | time | bar, from `value` on, `share` long: of the section's whole time
 *   PAGE_TABLE    a cell for each of the section's columns
 *   PAGE_MAP      a launch | when its CTAs ran (four numbers each: SM, begin and end as shares of
 *                 the length, how many ran on this SM before), the length, and in `value` the SMs
 *                 | text
 *   PAGE_NODE     a node of a tree, whose depth is `value`: name | how much, and `share` | text
 *   PAGE_CALL     a call: name | how it runs | time and `share` | part of its roof | mark
 *
 * In a section that is a tree over time (TIME of a request):
 *
 *   PAGE_EVENT    the moment (ms, `value`) | name | how long | text
 *   PAGE_CHANGE   the moment | text: from here on the request runs differently
 *   PAGE_FACT     what about the change above | text
 *   PAGE_OP       an op of the phase above: name, and its `share` | rate | part of its roof | mark
 *   PAGE_OF_OP    text about the op above it
 *   PAGE_SERIES   as above, of the event above it
 *   PAGE_REMARK   text about the event above it
 *
 * Texts are clean for a terminal (story/read.h). All of a page lies in its arena. */
#ifndef VT_STORY_PAGE_H
#define VT_STORY_PAGE_H

#include "base/mem.h"
#include "story/read.h"

enum { PAGE_CELLS = 10, PAGE_SECTIONS = 32 };

typedef enum page_row_kind {
    PAGE_TITLE,
    PAGE_TEXT,
    PAGE_LINE,
    PAGE_LABEL,
    PAGE_ITEM,
    PAGE_MORE,
    PAGE_SERIES,
    PAGE_SPAN,
    PAGE_TABLE,
    PAGE_MAP,
    PAGE_NODE,
    PAGE_CALL,
    PAGE_EVENT,
    PAGE_CHANGE,
    PAGE_FACT,
    PAGE_OP,
    PAGE_OF_OP,
    PAGE_REMARK
} page_row_kind;

typedef struct page_cell {
    const char *text;     /* "" where there is none */
    double value, share;  /* NAN where there is none */
    const double *series; /* [n_series] */
    int32_t n_series;
    vt_ink ink; /* for emphasis; says nothing that the text does not */
} page_cell;

typedef struct page_row {
    page_row_kind kind;
    bool folded; /* detail: a terminal leaves it out, a page of HTML opens it on demand */
    int32_t n_cells;
    page_cell *cell;
    struct page_row *next;
} page_row;

typedef struct page_column {
    const char *title;
    bool right;   /* numbers */
    int32_t drop; /* where the page is narrow the column with the smallest goes first; 0: stays */
} page_column;

typedef struct page_section {
    const char *key;                /* "time", "findings": the same in every story */
    const char *title;              /* "": it has no heading of its own */
    const char *note;               /* beside the title; "": none */
    page_column column[PAGE_CELLS]; /* [n_columns] of its PAGE_TABLE rows */
    int32_t n_columns;
    page_row *row, *last;
} page_section;

typedef struct page {
    vt_arena arena;
    const json_t *story;
    page_section section[PAGE_SECTIONS];
    int32_t n_sections;
    bool failed; /* out of memory; rows are then written to `lost` */
    page_row lost;
    page_cell lost_cell[PAGE_CELLS];
    bool emulated; /* its times mean nothing */
} page;

/* Makes a story's page, or its head, timeline and findings alone (`brief`). The story must live as
 * long. */
vt_status page_of_story(const json_t *story, bool brief, page *out, vt_err *err);
void page_release(page *p);
/* Draws it, 80 cells wide at least: a narrower terminal breaks lines itself. (term.c) */
void page_to_terminal(const page *p, const vt_term *term, vt_buf *out);

/* ---- for the files that make it ---- */

/* An empty page. */
void page_begin(page *p, const json_t *story);

page_section *page_open(page *p, const char *key, const char *title, const char *note);
/* A row of empty cells at the end of the last section. */
page_row *page_add(page *p, page_row_kind kind, int32_t n_cells);
/* A row of one text, or of two; the buffer is released. */
void page_text(page *p, page_row_kind kind, vt_buf *text);
void page_pair(page *p, page_row_kind kind, const char *name, vt_buf *text);
/* The text of a buffer, which is released; a member's text; a text. */
const char *page_take(page *p, vt_buf *text);
const char *page_str(page *p, const json_t *o, const char *key);
const char *page_say(page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The numbers of {"values"}, at most 512, into a cell. What is no number is NAN. */
void page_series(page *p, page_cell *c, const json_t *list, const char *key);
/* The tag for a heading; another one where the times mean nothing. */
const char *page_tag(const page *p, const char *tag);
/* The member "gpu" of the engine; NULL: CPU workers ran the steps. */
const json_t *page_gpu(const page *p);
/* A kernel's name without its template parameters. */
const char *page_kernel_base(page *p, const json_t *o, const char *key);

/* TIME; REQUESTS and BATCH; the op table, cuts, a layer, late tokens; COUNTERS, KERNELS, GPU,
 * RANKS. */
void page_time(page *p);
void page_batch(page *p);
void page_step(page *p, const json_t *phase, const char *title);
void page_slow(page *p);
void page_cuts(page *p, const json_t *phase);
void page_layer(page *p);
void page_layers(page *p);
/* The prefix tree; the step as a whole on the roofline. */
void page_tree(page *p);
void page_trail(page *p);
void page_counters(page *p);
void page_activity(page *p);
void page_lines(page *p);
void page_ctas(page *p);
/* Adds the maps of the CTAs of an op's launches, "linear.qkv". */
void page_ctas_of_op(page *p, const char *op);
/* Adds the lines at which warps of this kernel instance, "rmsnorm<hidden=1024,...>", were. */
void page_lines_of_kernel(page *p, const char *kernel);
/* Adds those of all kernels that calls of an op launch, "linear.qkv". */
void page_lines_of_op(page *p, const char *op);
void page_kernels(page *p, const json_t *phase);
void page_gpu_section(page *p);
void page_ranks(page *p);

#endif
