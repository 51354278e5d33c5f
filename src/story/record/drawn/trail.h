/* The step as a whole: on the roofline, from prefill to decodes of more and more sequences, and the
 * time that an op would take in another step. */
#ifndef VT_STORY_TRAIL_H
#define VT_STORY_TRAIL_H

#include "story/record/phases.h"

/* Works out what the ops of the phases would take with twice the sequences and with smaller weights
 * (op_sum.if_twice_s, .if_small_s). */
vt_status story_model_ops(const story_input *in, story_record *r, story_step *plan,
                          phase phases[STORY_PHASES], vt_err *err);
/* The type that `if_small_s` is for: the next smaller one. -1: there is none. */
int story_smaller_weights(vt_dtype from);
/* Writes "trail". */
vt_status story_put_trail(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                          phase phases[STORY_PHASES], vt_err *err);

#endif
