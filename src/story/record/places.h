/* Series that a story.json has over time beside its steps (lanes), and the places of what a machine
 * may not be able to measure (tiers). Each says why it is empty where it is. */
#ifndef VT_STORY_PLACES_H
#define VT_STORY_PLACES_H

#include "base/json_write.h"
#include "story/record/phases.h"

enum { STORY_MAX_LANE = 512 /* values of a lane */ };

/* Writes the members "lanes" and "tiers". */
vt_status story_put_places(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                           vt_err *err);

#endif
