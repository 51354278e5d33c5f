/* Drafts by a smaller model with the same vocabulary (--draft MODEL; Leviathan et al., 2023).
 *
 * The draft model has an executor and KV pages of its own. For every slot of the engine it knows
 * the tokens whose KV it holds. Before a plan it is told which sequences want guesses (prepare):
 *
 *   what it holds     t0 t1 t2 t3 g0 g1       g1 was wrong: the model chose t5
 *   the sequence      t0 t1 t2 t3 g0 t5 t6
 *                                    -----    1. computes what follows the common beginning,
 *   its guesses                         g0 g1 g2    2. then one token a step, for all sequences
 *                                                      at once
 *
 * A guess is drawn as the sequence's own tokens are: with its temperature, its seed and the token's
 * position. So where both models agree on the distribution they choose the same token also when
 * they sample.
 *
 * A prompt is computed in chunks of the token budget, one a plan; until then there are no guesses.
 * While a token of the sequence is pending it cannot be guessed what follows it, so the sequence
 * waits one step, as one with penalties does.
 *
 * A draft model with sequence state has a few state slots for each slot of the engine: the state
 * behind the known tokens, and those behind the guesses that it has read itself. What holds of a
 * draft always ends at one of them, so the next draft begins there.
 *
 * An MTP head (model/mtp.h) drafts likewise, with the hidden states of the engine's model. Each
 * step of the engine shows them (learn); they wait here for the tokens behind them:
 *
 *   position                 0   1   2   3
 *   token                    t0  t1  t2  t3     t0 has no place in an MTP head
 *   hidden state beside it       h0  h1  h2     h2 came out of the step that chose t3
 *
 * Its own guesses go on with its own hidden states. What it computed of them is computed again,
 * with the model's hidden states, once these are known. Where the engine takes tokens from its
 * prefix cache it shows no hidden states of them. They are in the drafter's own: a radix tree
 * (kv/radix.h) over the tokens from position 1 on, of those who share pages and begin with the same
 * token. Its pages keep the KV, as far as it was computed, and the hidden states, so that the rest
 * can be. A head that finds less than the engine begins behind, and does not see what came earlier.
 *
 * A step of the draft model that fails ends its guesses, and nothing else: text goes on without. */
#ifndef VT_ENGINE_DRAFT_MODEL_H
#define VT_ENGINE_DRAFT_MODEL_H

#include "base/err.h"
#include "engine/draft.h"
#include "exec/executor.h"

typedef struct vt_draft_model_config {
    vt_limits limits;     /* of its executor; max_seqs is the engine's max-running */
    int32_t n_pages;      /* of its executor */
    int32_t n_states;     /* likewise: VT_DRAFT_MOST for each slot of the engine whose sequences get
                              guesses, from slot 0 on; 0: it has no sequence state */
    int32_t vocab;        /* tokens that it reads */
    const int32_t *word;  /* the ids of those that it names, of an EAGLE-3 head; NULL: the same */
    size_t state_bytes;   /* of a hidden state, of an MTP or EAGLE-3 head; 0: it is a model */
    bool stream;          /* its steps show hidden states of all tokens, else of rows */
    int32_t target_vocab; /* guesses beyond it end a draft */
    vt_notice_hook notice; /* told once if its device fails */
} vt_draft_model_config;

/* Makes a drafter of a model and its executor. The drafter owns both from this call on, also if it
 * fails; `m` may be NULL. */
vt_status vt_draft_model_new(const vt_draft_model_config *c, vt_model *m, vt_executor *x,
                             vt_drafter *out, vt_err *err);

#endif
