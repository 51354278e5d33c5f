/* "gpu_counters" of a story.json: the hardware counters of a GPU, call by call, of a few steps that
 * ran apart for them (exec/cuda_vitals.c, docs/story-format.md). */
#ifndef VT_STORY_GPU_COUNTERS_H
#define VT_STORY_GPU_COUNTERS_H

#include "base/json_write.h"
#include "story/record/record.h"

/* Null where nobody asked for them. `plan` is set for each counted step. */
vt_status story_put_gpu_counters(vt_json *w, const story_input *in, story_record *r,
                                 story_step *plan, vt_err *err);
/* Returns true if the recording has counts of some call. */
bool story_is_counted(const story_input *in);

#endif
