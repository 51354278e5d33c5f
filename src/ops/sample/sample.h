/* The next token of every logit row, and the log-probabilities that were asked for.
 *
 * The steps, in fp32 and in this order, which is Hugging Face's order of warpers:
 *
 *   mask                an id that may not be chosen has logit -infinity from here on, whatever its
 *                       logit was
 *   bias
 *   penalties           repetition, over prompt and output (l > 0 ? l / r : l * r); presence and
 *                       frequency, over the output
 *   log-probabilities   of these logits, at temperature 1
 *   temperature         0: takes the largest logit, the lowest id among equals, and ends;
 *                       temperatures below about 1e-30 count as 1e-30
 *   top-k
 *   softmax
 *   top-p               keeps the smallest set, most likely ids first, whose sum reaches p
 *   min-p               drops ids with p_i < min_p * p_max
 *   draw                by inverse CDF over ids in rising order, u = philox(seed, position)
 *
 * If a logit is NaN, or none is above -infinity, the row's token is -1 and the engine fails the
 * request. A list of log-probabilities holds ids above -infinity; if fewer are left than were asked
 * for, it ends with ids of -1. */
#ifndef VT_OPS_SAMPLE_H
#define VT_OPS_SAMPLE_H

#include "ops/op.h"
#include "ops/sampling.h"

typedef struct sample_args {
    const vt_tensor *logits;         /* [rows, vocab] fp32; may be overwritten */
    const vt_sample_row *const *row; /* *row is [rows] */
    int32_t *const *token_pool;      /* *token_pool is [slots], read and written; NULL: none */
    vt_tensor *token;                /* [rows] int32 */
    vt_tensor *logprob;              /* [rows] fp32, of the chosen token; 0 if not asked for */
    vt_tensor *top_id;               /* [rows, VT_MAX_TOP_LOGPROBS] int32 */
    vt_tensor *top_logprob;          /* [rows, VT_MAX_TOP_LOGPROBS] fp32 */
} sample_args;

extern const vt_op sample_op;

/* A uniform number in [0, 1) with 24 bits, a pure function of its arguments (Philox 4x32-10, Salmon
 * et al., 2011). The same on every device. */
float sample_uniform(uint64_t seed, uint64_t counter);

#endif
