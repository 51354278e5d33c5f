/* Drafts: guesses of the tokens that come next, which a step verifies together with the last known
 * one. A guess is kept only if it is the token that the model chooses at that place, so drafts
 * change when tokens come and never which (Leviathan et al., 2023, arXiv:2211.17192, with one
 * difference: a draw is a function of seed and position here, so a sampled token is compared like a
 * greedy one).
 *
 *   plan      q asks for drafts when one token of it is left to compute (scheduler_plan.c)
 *   commit    vt_draft_verified learns how many held, and paces the next ones
 *
 * The pace: a sequence whose guesses all held guesses twice as many next time; one whose first
 * guess was wrong waits, twice as long after every failure, so that text that cannot be guessed
 * costs little. Beside many others a guess that fails costs more: the rows behind it take time that
 * all of them wait for. So the more sequences run, the larger a share of guesses has to hold. */
#ifndef VT_ENGINE_DRAFT_H
#define VT_ENGINE_DRAFT_H

#include "base/mem.h"

enum { VT_DRAFT_MOST = 7 /* guesses of a sequence in a step */ };

struct vt_seq;

/* Guesses up to `max` tokens of q that follow its pending token, or its last one where none is
 * pending, into out[0 .. max). Returns how many; 0: it has no guess. It must be a function of the
 * sequence alone. */
typedef struct vt_drafter {
    void *user;
    int32_t (*draft)(void *user, struct vt_seq *q, int32_t *out, int32_t max);
} vt_drafter;

/* A sequence keeps this for its drafts. */
typedef struct vt_drafting {
    int32_t *seen;     /* [n_seen] of prompt lookup; NULL: the sequence is never drafted by it */
    int32_t n_seen;    /* a power of two */
    int32_t n_indexed; /* tokens whose positions are in `seen` */
    int32_t length;    /* guesses to ask for next time; 0: none was ever made */
    int32_t pause;     /* plans to go until it may guess again */
    int32_t misses;    /* drafts in a row whose first guess was wrong */
    int32_t tokens, accepted; /* guesses verified so far, and those that held */
} vt_drafting;

/* The guesses of all sequences of an engine. Begin with zeros. */
typedef struct vt_draft_record {
    float wrong;    /* the share that did not hold, of the latest drafts */
    int32_t waited; /* plans since the last guess */
} vt_draft_record;

/* Prompt lookup (Saxena, 2023): what followed the last three tokens when they stood in the sequence
 * before. vt_draft_lookup_init gives a sequence of up to max_len tokens its index; false: out of
 * memory. */
extern const vt_drafter vt_draft_lookup;
bool vt_draft_lookup_init(vt_drafting *d, int32_t max_len, vt_arena *arena);

/* Asked once a plan for a sequence that could have drafts: true if it shall. */
bool vt_draft_due(vt_drafting *d);
/* Returns how many guesses to ask for: 1 .. VT_DRAFT_MOST. */
int32_t vt_draft_length(const vt_drafting *d);
/* Returns true if guesses of this kind hold often enough to pay beside `running` sequences: as far
 * as the sequence's own guesses tell, or else all of them. One plan in 64 tries all the same. */
bool vt_draft_pays(const vt_draft_record *all, const vt_drafting *d, int32_t running);
/* A step has verified `drafted` guesses, of which the first `accepted` held. */
void vt_draft_verified(vt_draft_record *all, vt_drafting *d, int32_t drafted, int32_t accepted);

#endif
