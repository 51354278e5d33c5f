/* The lists of a story.json that have a row a step, a row for each part of a prompt in a step, and
 * a row a request. */
#ifndef VT_STORY_STEPS_H
#define VT_STORY_STEPS_H

#include "base/json_write.h"
#include "story/record/record.h"

enum {
    STORY_MAX_STEPS = 2048,   /* rows of "steps", */
    STORY_MAX_CHUNKS = 1024,  /* of "chunks" */
    STORY_MAX_REQUESTS = 1024 /* and of "requests" */
};

/* The chosen steps, as indices; where there are more than STORY_MAX_STEPS, the first quarter of the
 * room holds the oldest, which have the prompt, and the rest the newest. Returns how many;
 * *left_out is how many are between the two. out[STORY_MAX_STEPS]. */
int32_t story_pick_steps(const story_record *r, int32_t *out, int32_t *left_out);
/* Writes the members "steps", "chunks" and "requests". */
vt_status story_put_steps(vt_json *w, story_record *r, vt_err *err);

#endif
