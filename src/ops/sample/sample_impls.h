#ifndef VT_OPS_SAMPLE_IMPLS_H
#define VT_OPS_SAMPLE_IMPLS_H

#include "ops/sample/sample.h"
#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(sample);

/* The candidates of a row and how to order them: higher x first, lower id first among equals. */
typedef struct sample_candidates {
    const float *x;      /* [vocab] logits */
    const float *weight; /* [vocab] e^((x - max) / T), multiples of 2^-34 */
    int32_t *id;         /* [n], reordered */
    int32_t n;
} sample_candidates;

/* Takes candidates, best first, until there are `count` of them or, with count 0, until their
 * weights sum to at least `mass`. Returns the id of the last one. Works in place; the expected time
 * is linear in n. */
int32_t sample_cut(sample_candidates *c, int32_t count, double mass);

/* Mask, bias and penalties, in place. seen: [vocab] scratch. */
void sample_adjust(float *logits, int32_t vocab, const vt_sample_row *row,
                   const int32_t *token_pool, int32_t *seen);

/* Store results of row r. */
void sample_put_top(const sample_args *a, int64_t r, int32_t rank, int32_t id, float logprob);

#endif
