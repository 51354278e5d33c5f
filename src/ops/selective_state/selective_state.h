/* Selective state space: the mixer of Mamba-2 layers, whose state is a matrix for each head (Dao
 * and Gu, 2024, arXiv:2405.21060). x = [x | B | C]: head by head, then group by group. Head j reads
 * B and C of group j / (heads / groups). For each head and token, with the state S [state_dim,
 * head_dim] in fp32:
 *
 *   step = softplus(dt + dt_bias), not below step_min nor above step_max
 *   S = e^(step decay) S + B (step x)^T              decay < 0
 *   y = S^T C + skip x
 *
 * S before a sequence's first token is read from slot batch.state_from (-1: zeros), and S behind
 * its last one is written to slot batch.state_to. There it lies head by head, its rows of head_dim
 * numbers one after the other, from column state_at of the slot on. S behind a token whose
 * batch.state_behind says so is written to that slot too.
 *
 * Tokens are taken one by one in their order, so a result does not depend on how a prompt is cut
 * into chunks. fp32 throughout. */
#ifndef VT_OPS_SELECTIVE_STATE_SELECTIVE_STATE_H
#define VT_OPS_SELECTIVE_STATE_SELECTIVE_STATE_H

#include "ops/op.h"

enum { SELECTIVE_STATE_DIM_MOST = 256 };

typedef struct selective_state_args {
    const vt_batch *batch;    /* q_start, state_from, state_to, state_behind */
    const vt_tensor *x;       /* [tokens, heads head_dim + 2 groups state_dim] */
    const vt_tensor *dt;      /* [tokens, heads] */
    const vt_tensor *decay;   /* [heads], of a float type */
    const vt_tensor *dt_bias; /* [heads], likewise; and so is skip */
    const vt_tensor *skip;
    vt_tensor *state; /* [slots, state_at + heads state_dim head_dim or more] */
    vt_tensor *y;     /* [tokens, heads head_dim] */
    int64_t state_at;
    int32_t heads, groups, head_dim, state_dim;
    float step_min, step_max; /* step_max 0: no limit */
    bool log_decay;           /* the rule's decay is -e^(decay[j]) */
} selective_state_args;

extern const vt_op selective_state_op;

#endif
