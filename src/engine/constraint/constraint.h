/* Constraints: what the next token of a sequence may be, decided by the tokens before it (a
 * grammar, a fixed text). The engine knows this interface and no grammar.
 *
 *   submit   mask                          the first token's
 *   plan     the step's sampling row gets the mask
 *            with drafts: take, mask, take, mask ... for each guess, then undo all
 *            so too for tokens that are certain, because a mask allows one only
 *   commit   take(token), mask             the next token's. The step that is in flight by then
 *                                          waits for it, if it has a row of the sequence
 *
 * All calls for a sequence come from one thread at a time: the one that submits, then the one that
 * runs the steps. None may wait for anything, for a step waits for it. One that would take long is
 * broken off there, and another thread makes it (late_masks.h); meanwhile the sequence is in no
 * step. */
#ifndef VT_ENGINE_CONSTRAINT_CONSTRAINT_H
#define VT_ENGINE_CONSTRAINT_CONSTRAINT_H

#include "engine/draft.h"
#include "vitrine.h"

/* The answer of a mask. */
typedef enum vt_allowance {
    VT_ALLOW_ANY,     /* every token may come: the words are not read */
    VT_ALLOW_MASK,    /* those whose bits are set */
    VT_ALLOW_NOTHING, /* none: the sequence ends with an error */
} vt_allowance;

/* The rules of one sequence, with their state. */
typedef struct vt_constraint {
    void *state;
    /* Says what may follow the tokens taken so far. words[0 .. n_words) are zeros at the call; bit
     * id % 32 of word id / 32 allows a token. End tokens are tokens like all others. */
    vt_allowance (*mask)(void *state, uint32_t *words, int32_t n_words);
    /* The sequence goes on with this token, which its mask allowed. false: it cannot, and the
     * state is as before. */
    bool (*take)(void *state, int32_t token);
    /* Takes the last n tokens back: at most VT_DRAFT_MOST, which were guesses. */
    void (*undo)(void *state, int32_t n);
    void (*free)(void *state); /* with the request; may be NULL */
    /* Returns true if VT_ALLOW_NOTHING was the answer because following the rules takes too much.
     * NULL: it never is. */
    bool (*is_too_large)(void *state);
    /* Masks so far that had to be made; the others had been made before. NULL: not known. */
    int64_t (*n_new)(void *state);
    /* From now on a mask or take that would take more than some milliseconds is broken off, or is
     * not (`on` is false, as at first). NULL: none takes long. */
    void (*hurry)(void *state, bool on);
    /* Returns true if the last mask or take was broken off: its answer, VT_ALLOW_NOTHING or false,
     * says nothing, and nothing has changed. NULL: it never is. */
    bool (*is_late)(void *state);
} vt_constraint;

/* The cost of a sequence's masks so far; of the time that of late ones is left out. */
typedef struct vt_mask_cost {
    int64_t n, n_new, ns, worst_ns;
} vt_mask_cost;

/* Makes the rules of a request's completion number `sample`; false: out of memory. */
typedef struct vt_constraint_maker {
    void *user;
    bool (*make)(void *user, int32_t sample, vt_constraint *out);
} vt_constraint_maker;

/* A constrained sequence keeps this: its rules, and a mask for each sampling row of a step. */
typedef struct vt_constrained {
    vt_constraint rules;
    uint32_t *mask; /* [1 + VT_DRAFT_MOST][n_words] */
    int32_t n_words;
    bool any[1 + VT_DRAFT_MOST]; /* VT_ALLOW_ANY, and the request's own `allowed` is not set */
    const uint32_t *allowed;     /* the request's, which holds as well; NULL: all */
    vt_mask_cost cost;
    vt_end_reason end; /* of the last vt_constrained_follow or _finish */
    /* of a call that was broken off */
    int32_t late_token;               /* to take before the mask is made; -1: none */
    int64_t late_at_ns;               /* when it was broken off, by the engine's clock */
    bool unwanted;                    /* atomic: the sequence has ended meanwhile */
    struct vt_constrained *next_late; /* in a list of late_masks.c, */
    void *owner;                      /* which gives this back with the mask */
} vt_constrained;

/* Begins with the mask of row 0, however long it takes; from then on calls are in a hurry. False:
 * nothing may come, as c->end says. */
bool vt_constrained_begin(vt_constrained *c);
/* Makes the mask of row i: what may follow the tokens taken so far. false: nothing may, or it would
 * take long. */
bool vt_constrained_next(vt_constrained *c, int32_t i);

typedef enum vt_follow {
    VT_FOLLOWS,
    VT_FOLLOW_ENDS, /* the sequence ends, as c->end says */
    VT_FOLLOW_LATE  /* broken off: vt_constrained_finish does the rest */
} vt_follow;

/* The sequence goes on with a token. With `masked` the mask of row 0 is made behind it. */
vt_follow vt_constrained_follow(vt_constrained *c, int32_t token, bool masked);
/* Does what vt_constrained_follow has broken off, and the mask of row 0 with it, however long that
 * takes. Any thread; until vt_constrained_finished no call for the sequence is made but
 * vt_constrained_unwanted. */
void vt_constrained_finish(vt_constrained *c);
/* The sequence has ended: vt_constrained_finish does nothing unless it has begun. */
void vt_constrained_unwanted(vt_constrained *c);
/* Counts the mask, for which no step has waited. VT_FOLLOWS or VT_FOLLOW_ENDS. */
vt_follow vt_constrained_finished(vt_constrained *c);
/* The mask of row i as vt_sample_row's; NULL: all tokens may come. */
const uint32_t *vt_constrained_mask(const vt_constrained *c, int32_t i);
/* Returns true if the mask of row 0 allows one token only. */
bool vt_constrained_certain(const vt_constrained *c);
/* Makes the masks of rows 1 .. n behind n guesses. Returns how many guesses may be verified: those
 * before the first that is not allowed, or behind which nothing is. */
int32_t vt_constrained_drafts(vt_constrained *c, const int32_t *guess, int32_t n);
/* Finds the tokens that are certain to come: the only one that the mask of row 0 allows, the only
 * one behind it, and so on, at most `max` <= VT_DRAFT_MOST. They go to out[0 .. n), and the masks
 * of rows 1 .. n are made. Returns n. */
int32_t vt_constrained_forced(vt_constrained *c, int32_t *out, int32_t max);

#endif
