/* y[t, :] = scale * dequant(table[token[t], :]): the embedding lookup ("index gather"). A token id
 * outside [0, vocab) is our own mistake; ids are checked when a request arrives. A negative entry
 * of batch.token has been replaced from the token pool by the executor (tokens, below). */
#ifndef VT_OPS_EMBED_H
#define VT_OPS_EMBED_H

#include "ops/op.h"

typedef struct embed_args {
    const vt_tensor *table; /* [vocab, hidden], any float or quantised type */
    const int32_t *tokens;  /* [tokens] resolved ids, all >= 0 */
    vt_tensor *y;           /* [tokens, hidden] */
    float scale;            /* Gemma: sqrt(hidden); else 1 */
} embed_args;

extern const vt_op embed_op;

#endif
