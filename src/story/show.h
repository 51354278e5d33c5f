/* Sections of a story in the terminal that have files of their own. */
#ifndef VT_STORY_SHOW_H
#define VT_STORY_SHOW_H

#include <jansson.h>

#include "base/term.h"

/* Requests and batch of a whole recording; nothing where the story has none. */
void story_show_batch(const json_t *story, const vt_term *term, vt_buf *out);

#endif
