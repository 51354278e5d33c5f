/* "activity" of a story.json: when the kernels and copies of some steps ran, by CUPTI's records
 * (exec/cuda_activity.c, docs/story-format.md), beside what stamps say of the same ops. */
#ifndef VT_STORY_ACTIVITY_H
#define VT_STORY_ACTIVITY_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* Writes null where nobody asked for it. */
vt_status story_put_activity(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                             const phase phases[STORY_PHASES], vt_err *err);
/* Why no kernel was recorded; NULL: some were. */
const char *story_no_activity(const story_input *in);

#endif
