/* "ctas" of a story.json: when every CTA of a step ran, and on which SM (exec/cuda_stamped.c,
 * docs/story-format.md), and the lane of busy SMs that follows from them. */
#ifndef VT_STORY_CTAS_H
#define VT_STORY_CTAS_H

#include "base/json_write.h"
#include "story/record/record.h"
#include "story/step.h"

/* Writes null where nobody asked for it. */
vt_status story_put_ctas(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                         vt_err *err);
/* Writes an item of "lanes": which share of the SMs had a CTA, over these steps; nothing where no
 * CTA is known. */
vt_status story_put_cta_lane(vt_json *w, const story_input *in, story_record *r, vt_err *err);

#endif
