/* The calls of a story.json: single steps call by call, and the typical step of each phase. */
#ifndef VT_STORY_CALLS_H
#define VT_STORY_CALLS_H

#include "base/json_write.h"
#include "story/record/phases.h"
#include "story/findings/slow.h"

enum { STORY_MAX_CALLS = 4096 /* rows of "calls": whole steps of them */ };

/* Writes the members "calls" and "typical". `plan` is set for steps of the record. */
vt_status story_put_calls(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                          const phase phases[STORY_PHASES], const slow_tokens *slow, vt_err *err);

#endif
