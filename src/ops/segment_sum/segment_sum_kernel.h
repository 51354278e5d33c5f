/* Sums of segments: see simd_portable.h for how this header is compiled. The compiler
 * vectorises the loop over columns. Columns are dealt out to the workers, in groups whose sums stay
 * in L1. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/segment_sum/segment_sum_impls.h"

enum { GROUP = 64 }; /* columns */

/* Sums n columns of x's rows [row, end) from column `at` on into row s of the outputs. */
static void sum_group(const segment_sum_args *a, int64_t row, int64_t end, int64_t s, int64_t at,
                      int64_t n)
{
    double total[GROUP] = {0};
    for (int64_t r = row; r < end; r++) {
        const float *x = row_f32(a->x, r) + at;
        for (int64_t i = 0; i < n; i++)
            total[i] += (double)x[i];
    }
    float *sum = row_f32(a->sum, s) + at, *rest = row_f32(a->rest, s) + at;
    for (int64_t i = 0; i < n; i++) {
        sum[i] = (float)total[i];
        rest[i] = (float)(total[i] - (double)sum[i]);
    }
}

static vt_status segment_sum_run(const void *args, const vt_lane *lane)
{
    const segment_sum_args *a = args;
    int64_t n = a->x->dim[1], begin, end;
    vt_lane_share(lane, vt_ceil_div(n, GROUP), 1, &begin, &end);
    int32_t s = 0;
    for (int32_t row = 0, next; row < a->batch->n_rows; row = next, s++) {
        next = vt_segment_end(a->batch, row);
        for (int64_t g = begin; g < end; g++)
            sum_group(a, row, next, s, g * GROUP, n - g * GROUP < GROUP ? n - g * GROUP : GROUP);
    }
    return VT_OK;
}

static bool segment_sum_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    return ((const segment_sum_args *)args)->x->dtype == VT_F32;
}

static void segment_sum_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const segment_sum_args *a = args;
    vt_cut_shape(out, "%lld rows of %lld", (long long)vt_size_rows(a->x, size),
                 (long long)a->x->dim[1]);
    vt_cut_cpu(out, t, vt_ceil_div(a->x->dim[1], GROUP), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(segment_sum) = {SIMD_IMPL(segment_sum, segment_sum_supports)};
