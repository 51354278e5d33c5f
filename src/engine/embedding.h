/* Embeddings: the vector of a prompt, pooled from the model's hidden states behind the final norm.
 *
 *   last   the state of the prompt's last token
 *   mean   the mean of all its tokens' states
 *   cls    the state of its first token
 *   rank   one number, the score of a pair of texts, from one token's state (model/rank.h)
 *
 * The executor sums the states of the positions [first, end) that a step computes, and these sums
 * are added here, in double precision. They have twice the digits of fp32: other chunks of a prompt
 * change a number of its vector by its last bit at most. */
#ifndef VT_ENGINE_EMBEDDING_H
#define VT_ENGINE_EMBEDDING_H

#include "base/mem.h"
#include "base/tensor.h"
#include "model/dense.h"
#include "model/rank.h"
#include "vitrine.h"

/* The part of an engine that pools. One thread uses it, which publishes. It borrows `dense` and
 * `rank`. Only VT_POOLING_RANK needs the latter, and then there are no dense layers. */
typedef struct vt_pooler {
    int32_t n_hidden;
    const vt_rank_head *rank; /* reads a score; NULL: none is wanted */
    const vt_pooled *dense;   /* what the pooled state passes; NULL: nothing */
    int32_t most;             /* vt_dense_most */
    double *next;             /* [most] */
    float *work;              /* [most] */
    float *vector;            /* [most] the one that was made last */
} vt_pooler;

/* A prompt's vector is made of these. */
typedef struct vt_embedding {
    int32_t first, end; /* positions whose states are pooled */
    int32_t n_vector;
    bool unscaled;
    double *sum; /* [most] NULL: no state came yet */
} vt_embedding;

/* Makes a pooler; false: out of memory. */
bool vt_pooler_init(vt_pooler *p, vt_pooling how, int32_t n_hidden, const vt_pooled *dense,
                    const vt_rank_head *rank);
void vt_pooler_release(vt_pooler *p);

/* A sum of nothing for a prompt of p->n_prompt tokens; NULL: out of memory. The other arguments are
 * those of the pooler. p->dimensions is 0 or at most what vt_dense_out says. */
vt_embedding *vt_embedding_new(vt_pooling how, int32_t n_hidden, const vt_pooled *dense,
                               const vt_rank_head *rank, const vt_request_params *p,
                               vt_arena *arena);
void vt_embedding_release(vt_embedding *m);
/* Adds the sum of some hidden states, [n_hidden] and [n_hidden] (ops/segment_sum). false: out of
 * memory. */
bool vt_embedding_add(const vt_pooler *p, vt_embedding *m, const float *sum, const float *rest);
/* Makes p->vector of the sum. false: the states were not numbers. */
bool vt_embedding_finish(const vt_pooler *p, vt_embedding *m);

#endif
