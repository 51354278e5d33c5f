/* Stories of an emulated GPU, whose times mean nothing. */
#ifndef VT_STORY_EMULATED_H
#define VT_STORY_EMULATED_H

#include "story/story.h"

/* Returns true if the emulated GPU of the tests ran the steps. */
bool story_is_emulated(const story_input *in);
/* Rewrites a story.json of an emulated GPU: times, rates and shares of time get the tag n/a, the
 * headline says why, and nothing is judged. *json is replaced. */
vt_status story_void_times(char **json, size_t *len, vt_err *err);

#endif
