/* "lines" of a story.json: at which lines of the kernels' sources the warps of some decode steps
 * were, and what they waited for there (exec/cuda_lines.c, docs/story-format.md). */
#ifndef VT_STORY_LINES_H
#define VT_STORY_LINES_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* Writes null where nobody asked for it. */
vt_status story_put_lines(vt_json *w, const story_input *in, story_record *r, const phase *decode,
                          vt_err *err);
/* Why nothing was sampled; NULL: it was. */
const char *story_no_lines(const story_input *in);

#endif
