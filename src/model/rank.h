/* Reads the score of a pair of texts from a hidden state.
 *
 *   a classifier (BERT, RoBERTa)   logit = out tanh(dense x + bias) + bias, x the first token's
 *                                  state
 *   "yes" and "no" (Qwen3)         logit = head[yes] x - head[no] x, x the last token's: the model
 *                                  was asked whether the document meets the query
 *
 * The score is the sigmoid of the logit (the second is then the share of "yes" among the two), or
 * the logit where the model's files say so. It takes about as many products as one token does in
 * one layer, so the host computes it, from the weights as the file has them. */
#ifndef VT_MODEL_RANK_H
#define VT_MODEL_RANK_H

#include "model/model.h"

/* The part of a model that reads scores. All zero: there is none. */
typedef struct vt_rank_head {
    const vt_model *m; /* NULL: the model does not rank */
    int32_t yes, no;   /* tokens, where there is no classifier */
} vt_rank_head;

/* Returns what reads scores of this model; its `m` is NULL if nothing does. */
vt_rank_head vt_rank_head_of(const vt_model *m);
/* Sees to it that the weights which scores are read from stay in host memory: those of packed 4-bit
 * codes would be given up once a device has them. To be called before any score is read. */
vt_status vt_rank_keep_weights(const vt_rank_head *h, vt_err *err);
/* Returns true if the score is read from the last token's state, and not from the first one's. */
bool vt_rank_reads_last(const vt_rank_head *h);
/* Returns the score of a state [hidden]. `work` has room for `hidden` numbers. `logit`: without the
 * sigmoid. */
float vt_rank_score(const vt_rank_head *h, const double *state, float *work, bool logit);

#endif
