/* Prefix match over whole cache lines: see simd_portable.h for how this header is compiled.
 * match_block compares MATCH_BLOCK ids at once, so there is one branch for two or four lines of
 * each sequence. */
#include "ops/prefix_match/prefix_match.h"

static int64_t match_length(const int32_t *a, const int32_t *b, int64_t n)
{
    int64_t i = 0;
    for (; i + MATCH_BLOCK <= n; i += MATCH_BLOCK) {
        int same = match_block(a + i, b + i);
        if (same < MATCH_BLOCK)
            return i + same;
    }
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* One worker does it: even a prompt of 100,000 ids takes less than waking another would save. */
static vt_status prefix_match_run(const void *args, const vt_lane *lane)
{
    const prefix_match_args *a = args;
    if (lane->worker == 0)
        *a->match = match_length(a->a, a->b, a->n);
    return VT_OK;
}
