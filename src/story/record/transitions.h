/* Transitions: where a request's steps begin to run differently, and what the hardware does
 * differently from then on. */
#ifndef VT_STORY_TRANSITIONS_H
#define VT_STORY_TRANSITIONS_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* Writes "transition": from prefill to decode, with the attention of both. */
void story_put_transition(vt_json *w, const story_input *in, const phase phases[STORY_PHASES]);
/* Writes "transitions": all of them in their order. `plan` is set for steps of the record. */
void story_put_transitions(vt_json *w, const story_input *in, const story_record *r,
                           story_step *plan);

#endif
