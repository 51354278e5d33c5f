/* Norms of parts of rows over the vector type: see simd_portable.h for how this header is compiled.
 * Parts are dealt out to the workers. One worker sums a part in four interleaved partial sums, so
 * its bits do not depend on the number of workers. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/part_norm/part_norm.h"
#include "ops/part_norm/part_norm_impls.h"
#include "ops/simd_any.h"

enum { PART_SUMS = 4 };

static inline float mean_square(const float *x, int64_t n)
{
    vf sum[PART_SUMS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (int s = 0; i < n; i += VF, s = (s + 1) % PART_SUMS) {
        vf v = vf_load_n(x + i, lanes_left(i, n));
        sum[s] = vf_fma(v, v, sum[s]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3]))) / (float)n;
}

static void part_norm_part(const part_norm_args *a, const float *x, const float *add, float gain,
                           float *y)
{
    int64_t n = a->dim;
    float scale = a->scale == 0 ? 1 : a->scale;
    vf plus = vf_set1(a->plus_one ? 1 : 0);
    vf inv = vf_set1(scale / sqrtf(mean_square(x, n) + a->eps)), times = vf_set1(gain);
    for (int64_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf v = vf_mul(vf_load_n(x + i, lanes), inv);
        if (a->weight)
            v = vf_mul(v, vf_add(vf_load_any(a->weight->data, a->weight->dtype, i, lanes), plus));
        if (add)
            v = vf_add(v, vf_load_n(add + i, lanes));
        vf_store_n(y + i, a->gain ? vf_mul(v, times) : v, lanes);
    }
}

static vt_status part_norm_run(const void *args, const vt_lane *lane)
{
    const part_norm_args *a = args;
    int64_t dim = a->dim, parts = a->y->dim[1] / dim, begin, end;
    float gain = a->gain ? tensor_get(a->gain, 0, 0) : 1;
    vt_lane_share(lane, a->y->dim[0] * parts, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / parts, at = unit % parts * dim;
        part_norm_part(a, row_f32(a->x, t) + at, a->add ? row_f32(a->add, t) + at : NULL, gain,
                       row_f32(a->y, t) + at);
    }
    return VT_OK;
}

static bool part_norm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const part_norm_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 &&
           (!a->weight || dtype_is_float(a->weight->dtype)) &&
           (!a->add || a->add->dtype == VT_F32) && (!a->gain || dtype_is_float(a->gain->dtype));
}

static void part_norm_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const part_norm_args *a = args;
    int64_t parts = a->y->dim[1] / a->dim, rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld parts of %d", (long long)rows, (long long)parts, a->dim);
    vt_cut_cpu(out, t, rows * parts, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(part_norm) = {SIMD_IMPL(part_norm, part_norm_supports)};
