/* Between the files that render a story.json in a terminal (story/story.h). */
#ifndef VT_STORY_RENDER_H
#define VT_STORY_RENDER_H

#include "story/read.h"

enum { RENDER_TIME_COLUMN = 11 };

typedef struct render_page {
    vt_buf *b;
    const vt_term *term;
    const json_t *story;
} render_page;

/* An empty line, a title, and a note at the right edge (NULL: none). */
void render_heading(render_page *p, const char *title, const char *right);
/* The tag for a heading; another one where the times mean nothing. */
const char *render_tag(const render_page *p, const char *tag);
/* A paragraph of a section: one space, then text whose further lines are indented by `indent`. The
 * buffer is released. */
void render_paragraph(render_page *p, vt_buf *text, int32_t indent);
/* The numbers of {"values"}, at most `max`; returns how many. What is no number is NAN. */
int32_t render_values(const json_t *list, double *out, int32_t max);
/* A kernel's name without its template parameters. */
const char *render_kernel_base(const json_t *o, const char *key, char out[STORY_TEXT]);
/* Cells of the terminal, at least 80: a narrower terminal breaks lines itself. */
static inline int32_t render_width(const render_page *p)
{
    return p->term->width < 80 ? 80 : p->term->width;
}

/* TIME: the request from its arrival to its end. */
void render_time(render_page *p);
/* A whole recording: its requests, and its batch over time. */
void render_batch(render_page *p);
/* A step op by op; how the ops cut their work; a layer of a single step; tokens that came late. */
void render_step(render_page *p, const json_t *phase, const char *title);
void render_cuts(render_page *p, const json_t *phase);
void render_layer(render_page *p);
void render_slow(render_page *p);
/* KERNELS and GPU, of a GPU's stories. */
void render_kernels(render_page *p, const json_t *phase);
void render_gpu(render_page *p);

#endif
