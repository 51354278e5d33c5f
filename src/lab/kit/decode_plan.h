/* How decode attention's KV is split, asked of the planners themselves: of the split kernel of a
 * GPU (which need not be here, because a plan is host work) and of the CPU's rows. */
#ifndef VT_LAB_KIT_DECODE_PLAN_H
#define VT_LAB_KIT_DECODE_PLAN_H

#include "lab/flashinfer/flashinfer.h"
#include "lab/kit/rows.h"

typedef struct decode_plan {
    int32_t items;        /* KV ranges of all sequences */
    int32_t longest;      /* tokens of the longest range */
    int32_t parts;        /* ranges of the first sequence */
    int64_t work;         /* items times KV heads: pieces for SMs or workers */
    double partial_bytes; /* partial outputs that are written and read again; 0: none */
} decode_plan;

/* n_seqs decodes of kv_len tokens each on the target. */
vt_status lab_decode_plan(const vt_target *t, const lab_heads *h, int32_t n_seqs, int32_t kv_len,
                          decode_plan *out, vt_err *err);

/* The running softmax of a chunk of scores and values, in double. */
typedef struct softmax_state {
    double m, l, o; /* maximum, sum of 2^(s - m), sum of 2^(s - m) v */
} softmax_state;

softmax_state softmax_of(const double *score, const double *value, int32_t n);
/* Merges two states over disjoint positions. The log-sum-exp of a state, base 2, is m + log2(l). */
softmax_state softmax_merge(softmax_state a, softmax_state b);

#endif
