/* How the token of one row of logits is chosen: what a step says of each of its rows, beside the
 * batch. ops/sample/sample.h has the order in which the settings apply. */
#ifndef VT_OPS_SAMPLING_H
#define VT_OPS_SAMPLING_H

#include <stdint.h>

#include "vitrine.h"

enum { VT_MAX_TOP_LOGPROBS = 20 };

typedef struct vt_sample_row {
    float temperature, top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
    int32_t n_top; /* -1: no log-probabilities; 0: of the chosen token; k: and of the k best */
    uint64_t seed;
    int32_t position;  /* of the token being chosen: the RNG's counter */
    int32_t pool_slot; /* token pool slot that receives the token (0 for -1); -1: none */
    int32_t target;    /* -1: choose. >= 0: no choice, the log-probability of this id (scoring) */
    const int32_t *context; /* [n_context] prompt then output so far, for penalties; NULL if none */
    int32_t n_prompt, n_context;
    int32_t pending_slot;      /* token pool slot whose token follows the context (sampled last step
                                  and not yet known to the CPU); -1: none */
    const vt_logit_bias *bias; /* [n_bias] */
    int32_t n_bias;
    const uint32_t *mask; /* [ceil(vocab / 32)] bit id % 32 of word id / 32: may be chosen;
                             NULL: all */
} vt_sample_row;

#endif
