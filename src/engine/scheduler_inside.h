/* What scheduler.c (lives of sequences) and scheduler_plan.c (making a step) share. */
#ifndef VT_ENGINE_SCHEDULER_INSIDE_H
#define VT_ENGINE_SCHEDULER_INSIDE_H

#include "engine/scheduler.h"

/* Tokens the sequence will have when everything in flight has arrived. */
static inline int32_t seq_length(const vt_seq *q) { return q->n_tokens + q->n_pending; }

/* Gives the radix tree the full pages whose tokens are known. A page whose tokens another page
 * holds already is swapped for that one, but only with may_swap: while a batch is being filled
 * its page lists are fixed. `step` writes the last of them. */
void sched_enter_pages(vt_sched *s, vt_seq *q, uint64_t step, bool may_swap);
/* Back to the queue, to be computed again later from whatever the cache still has. */
void sched_retract(vt_sched *s, vt_seq *q);
/* vt_sched_finish, with an output that lets the engine tell. */
void sched_end(vt_sched *s, vt_seq *q, vt_finish finish, const char *error);
void sched_unqueue(vt_sched *s, int32_t at);

#endif
