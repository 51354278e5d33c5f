/* Embeddings: the vector of a prompt, pooled from the model's hidden states behind the final norm.
 *
 *   last   the state of the prompt's last token
 *   mean   the mean of all its tokens' states
 *   cls    the state of its first token
 *   rank   one number, the score of a pair of texts, from one token's state (model/rank.h)
 *
 * The executor hands over the states of the positions [first, end) as it computes them, chunk by
 * chunk. They are summed here, in their order and in double precision. So the vector does not
 * depend on how the prompt was cut into chunks. Pooling on the device would save the rows' way to
 * the host. Mean pooling would then need a place on the device for each sequence's sum. */
#ifndef VT_ENGINE_EMBEDDING_H
#define VT_ENGINE_EMBEDDING_H

#include "base/mem.h"
#include "base/tensor.h"
#include "model/dense.h"
#include "model/rank.h"
#include "vitrine.h"

/* A prompt's vector is made of these. All arrays belong to the request. */
typedef struct vt_embedding {
    int32_t first, end; /* positions whose states are pooled */
    int32_t n_hidden, n_vector;
    bool unscaled;
    const vt_rank_head *rank; /* reads a score; NULL: none is wanted */
    const vt_pooled *dense;   /* what the pooled state passes; NULL: nothing */
    double *sum, *next;       /* [n_hidden, or as many as dense layers need] */
    float *state;             /* [likewise] one row, widened */
    float *vector;            /* [n_vector] */
} vt_embedding;

/* A sum of nothing for a prompt of n_prompt tokens; NULL: out of memory. p->dimensions is 0 or at
 * most what vt_dense_out says. `dense` and `rank` are borrowed; only VT_POOLING_RANK needs the
 * latter, and reads no vector that passes dense layers. */
vt_embedding *vt_embedding_new(vt_pooling how, int32_t n_hidden, const vt_pooled *dense,
                               const vt_rank_head *rank, const vt_request_params *p,
                               vt_arena *arena);
/* Adds n rows of hidden states, [n, n_hidden]. */
void vt_embedding_add(vt_embedding *m, const void *hidden, vt_dtype dtype, int32_t n);
/* Makes the vector. false: the states were not numbers. */
bool vt_embedding_finish(vt_embedding *m);

#endif
