/* y[t, :] += scale[k - 1] * B_k (A_k x[t, :])   for each token t whose sequence has adapter k > 0
 *
 * Low-rank adapters of one weight matrix (Hu and others, 2021, arXiv:2106.09685): what a sequence's
 * adapter adds to the matrix's product. Sequences of several adapters, and of none, may be in one
 * step. All adapters' matrices lie one below the other, B transposed, so that rows of adapter k
 * are first[k - 1] .. first[k] of both:
 *
 *   a [first[n], cols]      A of adapter 1, of adapter 2 ...
 *   b [first[n], rows]      B of adapter 1, turned, of adapter 2 ...
 *
 * An adapter without a part for this matrix has no rows here. */
#ifndef VT_OPS_LORA_H
#define VT_OPS_LORA_H

#include "ops/op.h"

enum { LORA_ADAPTERS = 32, LORA_RANK = 512 }; /* at most: adapters, and the rank of one */

typedef struct lora_args {
    const vt_batch *batch; /* seq_of, adapter */
    const vt_tensor *x;    /* [tokens, cols] */
    const vt_tensor *a;    /* [ranks, cols] fp32 */
    const vt_tensor *b;    /* [ranks, rows] fp32 */
    const int32_t *first;  /* [n + 1] in host memory, rising from 0 */
    const float *scale;    /* [n] in host memory */
    int32_t n;             /* adapters */
    int32_t most_rank;     /* the largest first[k] - first[k - 1] */
    float factor;          /* multiplies all scales */
    vt_tensor *y;          /* [tokens, rows] */
} lora_args;

extern const vt_op lora_op;

#endif
