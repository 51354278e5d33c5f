/* Gated delta rule: the mixer of linear attention layers whose state is a matrix for each head
 * (Yang, Kautz and Hatamizadeh, 2024, arXiv:2412.06464). x = [q | k | v], head by head; for each V
 * head and token, with the state S [k_dim, v_dim] in fp32:
 *
 *   q = q / sqrt(sum q^2 + 1e-6) / sqrt(k_dim)       k = k / sqrt(sum k^2 + 1e-6)
 *   beta = sigmoid(b)                                g = decay * softplus(a + dt_bias), decay < 0
 *   S = e^g S + k d^T                                d = beta (v - e^g S^T k)
 *   y = S^T q
 *
 * With `channels` each row of S has a decay of its own (Kimi delta attention, 2025,
 * arXiv:2510.26692): a and dt_bias have k_dim numbers a V head, e^g is a vector, and in these lines
 * e^g S multiplies row i of S by its element i.
 *
 * S before a sequence's first token is read from slot batch.state_from (-1: zeros), and S behind
 * its last one is written to slot batch.state_to. There it lies head by head, its rows of v_dim
 * numbers one after the other, from column state_at of the slot on. S behind a token whose
 * batch.state_behind says so is written to that slot too.
 *
 * Tokens are taken one by one in their order, so a result does not depend on how a prompt is cut
 * into chunks. fp32 throughout. The CUDA row "chunks" alone takes 16 tokens at a time, with other
 * roundings: gated_delta_cuda.c says which programs run it. */
#ifndef VT_OPS_GATED_DELTA_GATED_DELTA_H
#define VT_OPS_GATED_DELTA_GATED_DELTA_H

#include "ops/op.h"

enum { GATED_DELTA_K_DIM_MOST = 256 };

typedef struct gated_delta_args {
    const vt_batch *batch;    /* q_start, state_from, state_to, state_behind */
    const vt_tensor *x;       /* [tokens, 2 k_heads k_dim + v_heads v_dim] */
    const vt_tensor *a, *b;   /* [tokens, v_heads]; with channels a: [tokens, v_heads k_dim] */
    const vt_tensor *decay;   /* [v_heads], of a float type */
    const vt_tensor *dt_bias; /* [v_heads], or with channels [v_heads k_dim], likewise */
    vt_tensor *state;         /* [slots, state_at + v_heads k_dim v_dim or more] */
    vt_tensor *y;             /* [tokens, v_heads v_dim] */
    int64_t state_at;
    int32_t k_heads, v_heads, k_dim, v_dim;
    bool log_decay; /* the rule's decay is -e^(decay[j]) */
    bool tiled;     /* V head j has K head j mod k_heads; else j / (v_heads / k_heads) */
    bool channels;  /* each row of S has a decay of its own; else each head has one */
} gated_delta_args;

/* Returns the K head of a V head. */
static inline int32_t gated_delta_k_head(const gated_delta_args *a, int32_t j)
{
    return a->tiled ? j % a->k_heads : j / (a->v_heads / a->k_heads);
}

extern const vt_op gated_delta_op;

#endif
