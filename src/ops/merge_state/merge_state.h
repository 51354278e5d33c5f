/* Merge two partial attention results over disjoint KV ranges (split-K, shared prefixes).
 *
 *   m = max(sa, sb);  o = (2^(sa-m) oa + 2^(sb-m) ob) / (2^(sa-m) + 2^(sb-m));  s = m + log2(sum)
 *
 * LSE is base 2, as FlashInfer has it; an empty state is s = -inf, o = 0. */
#ifndef VT_OPS_MERGE_STATE_H
#define VT_OPS_MERGE_STATE_H

#include "ops/op.h"

typedef struct merge_state_args {
    const vt_tensor *oa, *ob; /* [tokens * heads, head_dim] */
    const vt_tensor *sa, *sb; /* [tokens * heads] fp32 */
    vt_tensor *o, *s;         /* may be oa and sa */
} merge_state_args;

extern const vt_op merge_state_op;

#endif
