/* How a row cuts its work, in words: vt_cut of ops/op.h. */
#ifndef VT_STORY_CUT_H
#define VT_STORY_CUT_H

#include "base/buf.h"
#include "story/step.h"

/* Appends the members that the row has set, each with ", " in front. */
void story_put_cut(vt_buf *b, const vt_cut *cut);
/* Tells how the row that runs a call in this step cuts it. False: it does not say, or the step does
 * not run the call. */
bool story_cut_of(const story_step *s, int32_t call, vt_cut *out);
/* Appends how the row that runs a call in this step cuts it: "[1 x 576] x [576 x 960], 60 items
 * over 2". Nothing where the row does not describe itself, or the step does not run the call. */
void story_describe_call(vt_buf *b, const story_step *s, int32_t call);

#endif
