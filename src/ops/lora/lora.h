/* y_p[t, :] += scale_p[k - 1] * B_pk (A_pk x[t, :])   for each part p, and each token t whose
 *                                                     sequence has adapter k > 0
 *
 * Low-rank adapters (Hu and others, 2021, arXiv:2106.09685): what a sequence's adapter adds to the
 * products of x with up to three matrices, such as q, k and v. Each matrix is a part. Sequences of
 * several adapters, and of none, may be in one step. All adapters' matrices of a part lie one below
 * the other, B transposed, so that rows of adapter k are first[k - 1] .. first[k] of both:
 *
 *   a [first[n], cols]      A of adapter 1, of adapter 2 ...
 *   b [first[n], rows]      B of adapter 1, turned, of adapter 2 ...
 *
 * An adapter without a part for a matrix has no rows there. */
#ifndef VT_OPS_LORA_H
#define VT_OPS_LORA_H

#include "ops/op.h"

enum {
    LORA_ADAPTERS = 32, /* at most: adapters, */
    LORA_RANK = 512,    /* the rank of one, */
    LORA_PARTS = 3      /* and the parts of a call */
};

typedef struct lora_part {
    const vt_tensor *a;   /* [ranks, cols] fp32; on a GPU bf16 */
    const vt_tensor *b;   /* [ranks, rows] likewise */
    vt_tensor *y;         /* [tokens, rows] */
    const int32_t *first; /* [n + 1] in host memory, rising from 0 */
    const float *scale;   /* [n] in host memory */
    int32_t most_rank;    /* the largest first[k] - first[k - 1] */
} lora_part;

typedef struct lora_args {
    const vt_batch *batch; /* seq_of, adapter */
    const vt_tensor *x;    /* [tokens, cols] */
    lora_part part[LORA_PARTS];
    int32_t n_parts;
    int32_t n;    /* adapters */
    float factor; /* multiplies all scales */
} lora_args;

extern const vt_op lora_op;

#endif
