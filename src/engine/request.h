/* A request and its sequences, as the engine keeps them.
 *
 *   vt_req             one vt_engine_submit: parameters, callback, deadline
 *     seq[0 .. n-1]    one completion each: tokens, pages, progress
 *
 * The counts of a sequence, at any moment between two plans:
 *
 *   token[]:   | prompt ............ | output known so far | (pending) |
 *              0                  n_prompt              n_tokens    n_tokens + n_pending
 *   n_computed: how many positions have their KV written by the steps planned so far. A sequence is
 *               ready to decode when n_computed == n_tokens + n_pending - 1; until then it is in
 *               prefill.
 *   n_pending:  how many sampled tokens are on the device only, because their step is in flight: at
 *               most 1 when a plan is made.
 *   n_drafted:  how many guesses the step in flight verifies. They lie in token[] behind the
 *               pending one. How many tokens such a step gives is known at its commit only, so the
 *               sequence is in no plan until then.
 *
 * All memory is allocated when the request is made, on the submitting thread; steps only fill
 * it. */
#ifndef VT_ENGINE_REQUEST_H
#define VT_ENGINE_REQUEST_H

#include "base/mem.h"
#include "base/trace.h"
#include "engine/constraint/constraint.h"
#include "engine/draft.h"
#include "engine/embedding.h"
#include "engine/stream.h"
#include "ops/sampling.h"
#include "vitrine.h"

enum { VT_MAX_SAMPLES = 128, VT_MAX_STOP_IDS = 64, VT_MAX_LOGIT_BIAS = 1024 };
enum { VT_MAX_ALLOWED = 1 << 20 }; /* several times the largest vocabulary */

typedef enum vt_seq_state {
    VT_SEQ_QUEUED = 0,
    VT_SEQ_RUNNING,
    VT_SEQ_MASKED, /* another thread makes its next mask, which takes long */
    VT_SEQ_DONE
} vt_seq_state;

typedef struct vt_seq {
    struct vt_req *req;
    int32_t index;  /* which of the n completions */
    uint8_t state;  /* vt_seq_state */
    uint8_t end;    /* vt_end_reason, set when DONE */
    bool admitted;  /* was running at least once */
    uint64_t order; /* arrival: smaller is older */
    int32_t *token; /* [max_len] */
    int32_t n_prompt, n_tokens, n_pending, n_computed, n_drafted;
    bool forced;        /* the guesses are tokens that its constraint leaves no choice of */
    int32_t n_forced;   /* tokens of that kind that were taken */
    int32_t max_len;    /* prompt and output together never exceed it */
    int32_t n_inflight; /* steps in flight that contain it: 0, 1 or 2; and one while MASKED */
    /* Positions of the prompt whose rows are told: those that are scored, or whose hidden states
     * are pooled. score_end: the first behind them; 0: there are none */
    int32_t score_end;
    int32_t n_scored;     /* the first of them that is not planned */
    int32_t n_score_done; /* the first whose row has not arrived */
    int32_t n_in_tree;    /* how many of the first pages are in the radix tree */
    int32_t *page, n_pages;
    /* With window pages: those of places window_begin .. window_end - 1 in its list of pages. The
     * ones before are behind the window */
    int32_t *window_page, window_begin, window_end;
    int32_t slot; /* in the device's token pool, while running */
    /* With sequence state, while running: the slot that its next step writes, and the one that this
     * step reads (-1: none, it begins with zeros; the same; or a snapshot that it holds) */
    int32_t state_to, state_from;
    int32_t guess_state[VT_DRAFT_MOST]; /* [n_guess_states] which the step in flight writes: the */
    int32_t n_guess_states;             /* states behind its guesses */
    int32_t branch;  /* where its prompt left the cached pages: a snapshot there may be used */
    int32_t kept_at; /* where its newest snapshot behind the prompt is; 0: none */
    int32_t cached_tokens; /* prompt tokens that needed no prefill, at first admission */
    int32_t n_passed;      /* admissions that went before it although it is older (lpm) */
    int32_t n_retracted, n_faults;
    int32_t n_chunks;    /* steps that computed prompt tokens of it */
    int64_t admitted_ns; /* when it was first admitted; 0: not yet */
    /* plans that left it in the queue, by their reason */
    uint16_t n_waited[VT_WAIT_REASONS];
    uint64_t prompt_step; /* the step that computes its last prompt token; 0: not planned */
    uint64_t admit_step;  /* the step that last admitted it */
    int32_t hit_copied;   /* tokens copied from part of a page then */
    int32_t left_page;    /* the last page that it left in the tree when it stopped; -1: none */
    uint64_t left_step;   /* the step that writes that page's last token */
    vt_sample_row row;    /* the fields of its sampling rows that never change */
    vt_drafting drafting;
    vt_constrained *constrained; /* NULL: any token may come */
    vt_embedding *embedding;     /* NULL: it generates */
    vt_stream stream;
} vt_seq;

typedef struct vt_req {
    vt_arena arena; /* holds this struct's arrays */
    vt_request_id id;
    vt_request_params p;            /* deep copy, but for `allowed`: see mask */
    uint32_t *mask;                 /* [ceil(vocab / 32)] p.allowed as vt_sample_row's; NULL: all */
    vt_logit_bias *early_bias;      /* [n_early_bias] in place of p.logit_bias for the first */
    int32_t n_early_bias;           /* p.min_tokens tokens; NULL: min_tokens is 0 */
    int32_t salt_len, tenant;       /* tenant: valid once the scheduler has it */
    int32_t adapter;                /* the number of p.adapter (vt_batch.adapter); 0: none */
    int64_t arrive_ns, deadline_ns; /* deadline INT64_MAX: none */
    uint8_t full;                   /* vt_end_reason of a sequence that has max_len tokens */
    int32_t n_live;                 /* sequences not DONE */
    int32_t n_inflight;             /* sum over the sequences */
    bool abort;                     /* vt_engine_abort was called; guarded by the engine's lock */
    uint64_t range;                 /* of a profiler's timeline, while the engine has it; or 0 */
    int32_t live_at;                /* its place in the engine's list; guarded by that lock too */
    vt_seq *seq;                    /* [p.n] */
} vt_req;

/* The limits that a request is checked against. */
typedef struct vt_req_limits {
    int32_t vocab, max_context, page_size, n_pages, max_queued;
    bool windows;       /* sequences get a list of window pages */
    const int32_t *eos; /* [n_eos] the model's end tokens, borrowed */
    int32_t n_eos;
    const vt_tokenizer *tokenizer; /* NULL: no text, stop strings are refused */
    uint64_t seed;                 /* the engine's, for requests without one */
    bool lookup;                   /* sequences get an index for prompt lookup (engine/draft.h) */
    vt_pooling pooling;            /* NONE: requests generate; else all of them are to embed */
    bool unscaled;                 /* vectors are not scaled, whatever a request says */
    int32_t n_hidden;              /* the model's, with pooling */
    const vt_pooled *dense;        /* layers behind pooling, borrowed; NULL: none */
    int32_t n_types;               /* of texts, which the model tells apart */
    const vt_model *adapted;       /* the model with adapters, borrowed; NULL: it has none */
    vt_rank_head rank;             /* with pooling rank */
} vt_req_limits;

/* How many tokens a prompt may have at most (0: any number). */
typedef struct vt_prompt_limit {
    int32_t tokens;
    const char *what; /* the limit's name; NULL: it is the model's context */
} vt_prompt_limit;

/* Refuses a text that is sure to have more tokens than that, without tokenising it; for the others
 * their tokens have to be counted. `most` may be NULL: no limit. VT_ERR_CONTEXT or, where the limit
 * is another one, VT_ERR_USAGE. */
vt_status vt_check_text_length(const vt_tokenizer *t, const char *text, size_t len,
                               const vt_prompt_limit *most, vt_err *err);
/* *whole gets the caller's fields, and defaults where the caller's struct is an older, shorter
 * one. VT_ERR_USAGE for a struct that vt_request_init has not seen or whose unknown fields are
 * set. */
vt_status vt_req_complete(const vt_request_params *p, vt_request_params *whole, vt_err *err);
/* Checks the parameters and makes a request of a copy of them. VT_ERR_USAGE names the field that is
 * wrong; VT_ERR_CONTEXT: the prompt is too long. */
vt_status vt_req_new(const vt_request_params *p, vt_request_id id, int64_t now_ns,
                     const vt_req_limits *lim, vt_req **out, vt_err *err);
/* Puts every sequence of a new request under the rules that `maker` makes. VT_ERR_GRAMMAR if they
 * allow no first token. */
vt_status vt_req_constrain(vt_req *r, const vt_constraint_maker *maker, int32_t vocab, vt_err *err);
void vt_req_free(vt_req *r);

/* *row becomes the row that chooses the sequence's token at `position`, but for its places in the
 * batch and the token pool, its context's length and its mask. */
static inline void vt_seq_choose_at(const vt_seq *q, int32_t position, vt_sample_row *row)
{
    *row = q->row;
    row->position = position;
    if (position - q->n_prompt < q->req->p.min_tokens) {
        row->bias = q->req->early_bias;
        row->n_bias = q->req->n_early_bias;
    }
}

/* Completion tokens known so far. */
static inline int32_t vt_seq_output(const vt_seq *s) { return s->n_tokens - s->n_prompt; }

#endif
