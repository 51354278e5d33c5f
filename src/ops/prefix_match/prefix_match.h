/* Length of the common prefix of two token sequences: the radix tree's inner loop. */
#ifndef VT_OPS_PREFIX_MATCH_H
#define VT_OPS_PREFIX_MATCH_H

#include "ops/op.h"

typedef struct prefix_match_args {
    const int32_t *a, *b;
    int64_t n;      /* both have at least n */
    int64_t *match; /* 0 .. n */
} prefix_match_args;

extern const vt_op prefix_match_op;

/* The best implementation for this CPU, for direct use by kv/. */
int64_t vt_prefix_match(const int32_t *a, const int32_t *b, int64_t n);

#endif
