/* y[t, :] = scale * dequant(table[token[t], :]): the embedding lookup ("index gather"). A token id
 * outside [0, vocab) is our own mistake; ids are checked when a request arrives. A negative entry
 * of tokens is a token that the step before sampled: it never left the device. */
#ifndef VT_OPS_EMBED_H
#define VT_OPS_EMBED_H

#include "ops/op.h"

typedef struct embed_args {
    const vt_tensor *table;       /* [vocab, hidden], any float or quantised type */
    const int32_t *const *tokens; /* *tokens is [tokens]: ids, or -1-k: slot k of the pool */
    int32_t *const *token_pool;   /* *token_pool is [slots]; NULL: every id is >= 0 */
    vt_tensor *y;                 /* [tokens, hidden] */
    float scale;                  /* Gemma: sqrt(hidden); else 1 */
    bool part;     /* the table is a rank's part of the vocabulary: other ids give zeros */
    int32_t first; /* part: the id of the table's first row */
} embed_args;

extern const vt_op embed_op;

#endif
