/* `vitrine top` shows this: looks at an engine (docs/live-page.md) made into a frame of text. */
#ifndef VT_CLI_TOP_FRAME_H
#define VT_CLI_TOP_FRAME_H

#include <jansson.h>

#include "base/buf.h"
#include "base/term/term.h"

enum { TOP_STEPS = 128 };

typedef struct top_view {
    json_t *look;  /* the last one; NULL: none has come */
    double busy_s; /* how long the step under way has run, where it is a long one; else 0 */
    /* the newest steps, oldest first */
    double decodes[TOP_STEPS], prefill[TOP_STEPS], ms[TOP_STEPS];
    int64_t step[TOP_STEPS];
    int32_t n_steps;
} top_view;

/* Takes the data of an event; false where it is no look. */
bool top_view_take(top_view *v, const char *data, size_t len);
void top_view_release(top_view *v);
/* Appends at most `rows` lines of at most term->width cells, each ended by a newline. */
void top_view_draw(const top_view *v, const vt_term *term, int32_t rows, vt_buf *out);

#endif
