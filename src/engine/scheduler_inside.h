/* Declarations for scheduler.c (the lives of sequences), scheduler_plan.c (making a step) and
 * scheduler_check.c (the invariants). */
#ifndef VT_ENGINE_SCHEDULER_INSIDE_H
#define VT_ENGINE_SCHEDULER_INSIDE_H

#include "engine/scheduler.h"

/* Tokens the sequence will have when everything in flight has arrived. */
static inline int32_t seq_length(const vt_seq *q) { return q->n_tokens + q->n_pending; }

/* Enters the sequence's full pages, as far as their tokens are known, into the radix tree. `step`
 * is the step that writes the last of them. If the tree has a page with the same tokens already,
 * the sequence switches to that page, but only with may_swap: while a batch is being filled its
 * page lists must not change. */
void sched_enter_pages(vt_sched *s, vt_seq *q, uint64_t step, bool may_swap);
static inline bool sched_has_states(const vt_sched *s) { return s->radix.states.n_slots > 0; }
static inline bool sched_has_windows(const vt_sched *s) { return s->radix.windows.n_slots > 0; }
/* A running sequence gives back the window pages that its next token no longer sees. */
void sched_slide(vt_sched *s, vt_seq *q);
/* Takes state slots for a sequence's next n guesses. Returns for how many of them there are slots
 * now. */
int32_t sched_take_guess_states(vt_sched *s, vt_seq *q, int32_t n);
/* Takes window pages for a running sequence's next n tokens. Returns for how many of them there are
 * pages now. */
int32_t sched_cover(vt_sched *s, vt_seq *q, int32_t n);
/* Tokens at the end of a prompt that the next turn of a chat may have otherwise: templates open an
 * answer with words (a thought's "<think>") that they leave out of the history. */
enum { SCHED_OPENING = 8 };
/* Returns the last page border at which a sequence's state is worth a snapshot: its last token is
 * always computed, and of a prompt the opening of the answer may not come again. */
static inline int32_t sched_last_border(const vt_sched *s, const vt_seq *q)
{
    int32_t n = seq_length(q) - 1, size = s->radix.page_size, opening = 0;
    if (n < q->n_prompt)
        opening = n < SCHED_OPENING ? n : SCHED_OPENING;
    return (n - opening) / size * size;
}
/* Returns the page border, before the last one that is worth a snapshot, at which a long prompt's
 * state is kept on its way: the next one behind `computed` tokens. 0 if there is none, or no slot
 * for it that nobody misses. */
int32_t sched_border_on_the_way(const vt_sched *s, const vt_seq *q, int32_t computed);
/* Puts a running sequence back into the queue. Later it is computed again, from whatever the cache
 * still has. */
void sched_retract(vt_sched *s, vt_seq *q);
/* vt_sched_finish, and an output that makes the engine tell the owner. */
void sched_end(vt_sched *s, vt_seq *q, vt_end_reason end);
/* True if the policy has a before b in the queue. */
bool sched_goes_before(const vt_sched *s, const vt_seq *a, const vt_seq *b);
/* Takes queue[at] out of the queue. */
void sched_unqueue(vt_sched *s, int32_t at);

#endif
