/* Calls that took far longer than the same op's calls in the other layers: the start of a library
 * or of a kernel, or a device that was held up once.
 *
 *   linear.qkv   L00 3,010 us | L01 10 us | L02 10 us | ... | L27 10 us
 *                ^ the start of a library: 3,000 us that a second prompt does not pay
 *
 * The op tables keep these times, so that they sum to the step. Rules that speak of how fast an op
 * is leave them out. */
#ifndef VT_STORY_ONCE_H
#define VT_STORY_ONCE_H

#include "story/record/phases.h"

/* Looks at the calls of a step that phase.mark has, and empties phase.mark. To be called after the
 * step's calls were added to the phase. */
void story_once_step(phase *p, const step_record *s, const vt_program *program);
/* Keeps what matters of the ops' `once`, after the last step. */
void story_once_settle(phase *p);

#endif
