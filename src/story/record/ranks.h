/* The devices of a story: what each can do, and, where several share a model, who waited for
 * whom. */
#ifndef VT_STORY_RANKS_H
#define VT_STORY_RANKS_H

#include "story/findings/findings_inside.h"

/* Writes "roofs": every figure with its own tag, and where it has one its working set. */
void story_put_roofs(vt_json *w, const vt_roofs *r);
/* Writes "hardware" and "ranks". */
void story_put_ranks(vt_json *w, const story_input *in, const story_record *r, story_step *plan,
                     const phase phases[STORY_PHASES]);
/* Finds the rank that lost most time by waiting for another. */
void findings_judge_ranks(findings *f, const story_input *in, const story_record *r);

#endif
