/* Sampling rows as the device takes them: fixed size, with all rows' contexts, biases and masks in
 * three arrays beside them, which a row points into by index. */
#ifndef VT_OPS_SAMPLE_CUDA_H
#define VT_OPS_SAMPLE_CUDA_H

#include "ops/sample/sample.h"

typedef struct sample_cuda_row {
    uint64_t seed;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int32_t top_k, n_top, position, pool_slot, target, context, n_prompt, n_context, pending_slot,
        bias, n_bias, mask; /* mask: its first word; -1: none */
} sample_cuda_row;

/* How long the three arrays are for some rows. Contexts count only where a row has penalties; a
 * mask once where rows side by side (samples of a request) have it. */
typedef struct sample_cuda_counts {
    int64_t contexts, biases, mask_words;
} sample_cuda_counts;

sample_cuda_counts sample_cuda_count(const vt_sample_row *rows, int32_t n, int32_t vocab);
/* row [n], contexts [counts.contexts], biases [counts.biases], masks [counts.mask_words]. */
void sample_cuda_pack(const vt_sample_row *rows, int32_t n, int32_t vocab, sample_cuda_row *row,
                      int32_t *contexts, vt_logit_bias *biases, uint32_t *masks);
/* A row that is there to pad: greedy, nothing asked, no slot written. */
sample_cuda_row sample_cuda_padding(void);

/* What sampling so many rows takes of the lane's workspace. */
size_t sample_cuda_workspace(int64_t rows, int64_t vocab);

#endif
