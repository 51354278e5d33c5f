/* Sections of a story in the terminal that have files of their own. */
#ifndef VT_STORY_SHOW_H
#define VT_STORY_SHOW_H

#include <jansson.h>

#include "base/term.h"

/* The line of slow tokens; nothing where there are none. */
void story_show_slow(const json_t *story, const vt_term *term, vt_buf *out);
/* Requests and batch of a whole recording; nothing where the story has none. */
void story_show_batch(const json_t *story, const vt_term *term, vt_buf *out);

#endif
