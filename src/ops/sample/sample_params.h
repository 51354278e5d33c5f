/* Parameters of sample.cu, and a sampling row as the device takes it. The host's code and the
 * kernels include this file. */
#ifndef VT_OPS_SAMPLE_SAMPLE_PARAMS_H
#define VT_OPS_SAMPLE_SAMPLE_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct sample_row {
    uint64_t seed;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int32_t top_k, n_top, position, pool_slot, target;
    int32_t context, n_prompt, n_context, pending_slot; /* for penalties; context: first element */
    int32_t bias, n_bias;                               /* bias: first element */
    int32_t mask;                                       /* first word; -1: none */
} sample_row;

/* vt_logit_bias of vitrine.h */
typedef struct sample_bias {
    int32_t id;
    float bias;
} sample_bias;

/* The weight of one chunk of a row's ids in units of 2^(exponent - 39). */
typedef struct sample_chunk_mass {
    uint64_t sum;
    float exponent, spare;
} sample_chunk_mass;

typedef struct sample_params {
    float *logits;
    const sample_row *rows;
    const int32_t *contexts;
    const sample_bias *biases;
    const uint32_t *masks;
    int32_t *pool;
    int32_t *token;
    float *logprob;
    int32_t *top_id;
    float *top_logprob;
    float *group_max;        /* [rows][groups] */
    sample_chunk_mass *mass; /* [rows][chunks][2] */
    uint32_t *tickets;       /* [rows] */
    int32_t logits_stride, parts;
} sample_params;

#endif
