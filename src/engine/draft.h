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

enum {
    VT_DRAFT_MOST = 7, /* guesses of a sequence in a step */
    /* sequences from which on guesses have to be worth the rows of the step that they take, also
     * where they cost no computing (prompt lookup) */
    VT_DRAFT_CROWD = 16
};

struct vt_seq;

/* A decode of the plan being made, and how many guesses lie behind its last token, or are to. */
typedef struct vt_drafted {
    struct vt_seq *seq;
    int32_t n;
} vt_drafted;

typedef struct vt_drafter {
    void *user;
    /* Guesses up to `max` tokens of q that follow its pending token, or its last one where none is
     * pending, into out[0 .. max). Returns how many; 0: it has no guess; -1: it may have some when
     * no token is pending. They must follow from the sequence's tokens and its sampling alone. */
    int32_t (*draft)(void *user, struct vt_seq *q, int32_t *out, int32_t max);
    /* Tells it beforehand which sequences of a plan will be asked, and for how many guesses at
     * most. It may write into their tokens behind the last known one. Returns the nanoseconds that
     * a device worked on it. NULL: it has no use for that. */
    int64_t (*prepare)(void *user, const vt_drafted *ask, int32_t n);
    /* The model has computed n tokens of q, guesses among them, from position `from` on; `states`
     * are their hidden states (vt_step_result.hidden). Called before its tokens are taken in. NULL:
     * it has no use for them. */
    void (*learn)(void *user, const struct vt_seq *q, int32_t from, int32_t n, const void *states);
    void (*free)(void *user); /* NULL: nothing to free */
} vt_drafter;

static inline void vt_drafter_free(vt_drafter *d)
{
    if (d->free)
        d->free(d->user);
    *d = (vt_drafter){0};
}

/* A sequence keeps this for its drafts. */
typedef struct vt_drafting {
    int32_t *seen;     /* [n_seen] of prompt lookup; NULL: the sequence is never drafted by it */
    int32_t n_seen;    /* a power of two */
    int32_t n_indexed; /* tokens whose positions are in `seen` */
    int32_t length;    /* guesses to ask for next time; 0: none was ever made */
    int32_t pause;     /* plans to go until it may guess again */
    int32_t wanted;    /* guesses to ask for in the plan being made */
    int32_t misses;    /* drafts in a row whose first guess was wrong */
    bool trial;        /* what is wanted is not known to pay */
    int32_t tokens, accepted; /* guesses verified so far, and those that held */
} vt_drafting;

enum { VT_DRAFT_SIZES = 12 /* of batches: 1, 2 to 3, 4 to 7 sequences, ... */ };

/* The guesses of all sequences of an engine. Begin with zeros. */
typedef struct vt_draft_record {
    float wrong;       /* the share that did not hold, of the latest drafts */
    int32_t waited;    /* plans since the last guess */
    int32_t fruitless; /* trials since a guess held, up to a few */
    int32_t verified;  /* guesses of all sequences so far, as long as they are few */
    /* Of decode steps of this many sequences: nanoseconds a token, with guesses (what preparing
     * them took included) and without; 0: not known. plans: how many asked. */
    float with_ns[VT_DRAFT_SIZES], without_ns[VT_DRAFT_SIZES];
    uint32_t plans[VT_DRAFT_SIZES];
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
/* Returns true if guesses of this kind are known to hold often enough to pay beside `running`
 * sequences: as far as the sequence's own guesses tell, or else all of them. */
bool vt_draft_pays(const vt_draft_record *all, const vt_drafting *d, int32_t running);
/* Returns how many sequences of a plan may guess although that is not known to pay: an eighth of
 * them where nothing is known yet, and after 64 plans without a guess; after 128, 256 ... 1,024
 * where no guess held since. */
int32_t vt_draft_trials(const vt_draft_record *all, int32_t running);
/* A plan has a guess that the drafter made. */
void vt_draft_guessed(vt_draft_record *all);
/* Asked once a plan where guesses have to be computed, or sequences are many: true if the steps of
 * `running` sequences are known to give tokens faster with guesses than without, and for a few
 * plans in 64, so that both are known. */
bool vt_draft_worth(vt_draft_record *all, int32_t running);
/* A decode step of n sequences took this long, and gave this many tokens. */
void vt_draft_took(vt_draft_record *all, int32_t n, bool drafted, int64_t ns, int32_t tokens);
/* A step has verified `drafted` guesses, of which the first `accepted` held. */
void vt_draft_verified(vt_draft_record *all, vt_drafting *d, int32_t drafted, int32_t accepted);

#endif
