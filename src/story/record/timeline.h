/* The way of a request, from its first byte to its last: "timeline" of story.json. */
#ifndef VT_STORY_TIMELINE_H
#define VT_STORY_TIMELINE_H

#include "base/json_write.h"
#include "story/record/phases.h"

vt_status story_put_timeline(vt_json *w, const story_input *in, story_record *r,
                             const phase phases[STORY_PHASES], vt_err *err);
/* Writes "prefix": what the prefix cache had of the request's prompt and what that saved. */
void story_put_prefix(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                      const phase *prefill);
/* The share of the engine thread's work of this part, over the phase's steps, that was done while
 * the device worked. NAN: there is none. */
double story_hidden(const story_record *r, bool prefill, vt_trace_part part);

#endif
