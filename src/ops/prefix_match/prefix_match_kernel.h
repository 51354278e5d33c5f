/* Prefix match over whole cache lines: see simd_portable.h for how this header is compiled.
 * match_block compares MATCH_BLOCK ids at once, so there is one branch for two or four lines of
 * each sequence. */
#include "ops/cut.h"
#include "ops/prefix_match/prefix_match.h"
#include "ops/prefix_match/prefix_match_impls.h"

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

/* Worker 0 does all of it: waking another worker would cost more than it saves, even for a prompt
 * of 100,000 ids. */
static vt_status prefix_match_run(const void *args, const vt_lane *lane)
{
    const prefix_match_args *a = args;
    if (lane->worker == 0)
        *a->match = match_length(a->a, a->b, a->n);
    return VT_OK;
}

static void prefix_match_describe(const void *args, const vt_target *t, const vt_size *size,
                                  vt_cut *out)
{
    (void)t, (void)size;
    const prefix_match_args *a = args;
    vt_target one = {.limits.n_workers = 1};
    vt_cut_shape(out, "%lld ids against %lld", (long long)a->n, (long long)a->n);
    out->tile[0] = MATCH_BLOCK;
    vt_cut_cpu(out, &one, 1, MATCH_VECTOR_BYTES);
}

const vt_impl SIMD_ROW(prefix_match) = {.name = SIMD_NAME,
                                        .device = VT_DEVICE_CPU,
                                        .isa = SIMD_ISA,
                                        .run = prefix_match_run,
                                        .describe = prefix_match_describe};
