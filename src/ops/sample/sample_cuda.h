/* Sampling rows as the device takes them: fixed size, with all rows' contexts and biases in two
 * arrays beside them, which a row points into by index. */
#ifndef VT_OPS_SAMPLE_CUDA_H
#define VT_OPS_SAMPLE_CUDA_H

#include "ops/sample/sample.h"

typedef struct sample_cuda_row {
    uint64_t seed;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int32_t top_k, n_top, position, pool_slot, target, context, n_prompt, n_context, pending_slot,
        bias, n_bias, spare;
} sample_cuda_row;

/* How much contexts and biases these rows bring. Contexts count only where a row has penalties. */
void sample_cuda_counts(const vt_sample_row *rows, int32_t n, int64_t *n_contexts,
                        int64_t *n_biases);
/* row [n], contexts [n_contexts], biases [n_biases]. */
void sample_cuda_pack(const vt_sample_row *rows, int32_t n, sample_cuda_row *row, int32_t *contexts,
                      vt_logit_bias *biases);
/* A row that is there to pad: greedy, nothing asked, no slot written. */
sample_cuda_row sample_cuda_padding(void);

/* What sampling so many rows takes of the lane's workspace. */
size_t sample_cuda_workspace(int64_t rows, int64_t vocab);

#endif
