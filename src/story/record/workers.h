/* CPU workers of a story: what each did with its time, the hardware events that were counted for
 * them, and which of them the others waited for. */
#ifndef VT_STORY_WORKERS_H
#define VT_STORY_WORKERS_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* Writes "threads": one object for each worker. */
void story_put_threads(vt_json *w, const story_input *in, const story_record *r);
/* Writes "counters" of a phase: means of its typical steps; null where none were counted. */
void story_put_counters(vt_json *w, const story_input *in, const story_record *r, bool prefill);
/* Writes "imbalance" and "straggler" of an op; both null where no workers met after its calls. */
void story_put_imbalance(vt_json *w, const story_input *in, const op_sum *o);
/* Returns the bits of the hardware events that were counted in a chosen step. */
unsigned story_counted(const story_record *r);
/* The hardware event's value in a step, as a sum over the workers; NAN: it was not counted. */
double step_count(const step_record *s, vt_counter c);

#endif
