/* Makes other forms of story.json files than the page in the terminal (story/story.h): a trace, the
 * difference of two, and what other hardware or another batch would have made of it. */
#ifndef VT_STORY_FORMS_H
#define VT_STORY_FORMS_H

#include "base/buf.h"
#include "base/term/term.h"
#include "vitrine.h"

/* A story file as it was read; `name` is used in messages and headings. */
typedef struct story_file {
    const char *name, *json;
    size_t len;
} story_file;

/* The story as a trace: "chrome", "pftrace", "speedscope" or "folded" (forms/trace.h). Appends a
 * whole file of that form; a pftrace is binary. */
vt_status story_export(const story_file *f, const char *form, vt_buf *out, vt_err *err);

/* The story's steps, ops and layers as a flame graph for a terminal, `wide` cells at most. Appends
 * it. VT_ERR_USAGE: the story has no step. */
vt_status story_flame(const story_file *f, const vt_term *term, vt_buf *out, vt_err *err);

/* The story as one page of HTML that needs no other file and no network: the terminal's sections,
 * and a timeline to zoom into. Appends it. (page/html.c) */
vt_status story_html(const story_file *f, vt_buf *out, vt_err *err);

typedef struct story_diff_options {
    bool markdown;    /* tables of Markdown, no colour */
    uint64_t step[2]; /* compare these steps of A and of B; 0: the mean steps of the stories */
    double fail_over; /* a share; NAN: nothing fails */
    bool *failed;     /* set where B's step takes longer than A's by more than fail_over */
} story_diff_options;

/* B minus A, op by op; the rows add up to the difference of the steps. Appends to out. */
vt_status story_diff(const story_file *a, const story_file *b, const story_diff_options *options,
                     const vt_term *term, vt_buf *out, vt_err *err);

/* The changes to model; NULL or 0: as it was recorded. */
typedef struct story_whatif_options {
    const char *kv_dtype, *weights, *hardware;
    int32_t batch, prefix;
} story_whatif_options;

/* The recorded steps costed again, beside the recorded ones. Opens the story's model. Appends to
 * out. */
vt_status story_whatif(const story_file *f, const story_whatif_options *ask, const vt_term *term,
                       vt_buf *out, vt_err *err);

#endif
