/* The gated norm over the vector type: see simd_portable.h for how this header is compiled. Heads
 * are dealt out to the workers; one worker sums a head, in two interleaved partial sums. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/gated_norm/gated_norm_impls.h"
#include "ops/simd_any.h"

static inline void norm_head(const gated_norm_args *a, const float *x, const float *z, float *y)
{
    int64_t n = a->weight->dim[0], i = 0;
    vf sum[2] = {vf_zero(), vf_zero()};
    for (int s = 0; i < n; i += VF, s = !s) {
        vf v = vf_load_n(x + i, lanes_left(i, n));
        sum[s] = vf_fma(v, v, sum[s]);
    }
    vf inv = vf_set1(1 / sqrtf(vf_sum(vf_add(sum[0], sum[1])) / (float)n + a->eps));
    for (i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf g = vf_load_n(z + i, lanes), e = vf_exp2(vf_mul(g, vf_set1(-LOG2E)));
        vf w = vf_mul(vf_load_any(a->weight->data, a->weight->dtype, i, lanes), inv);
        vf gate = vf_div(a->sigmoid ? vf_set1(1) : g, vf_add(vf_set1(1), e));
        vf_store_n(y + i, vf_mul(vf_mul(vf_load_n(x + i, lanes), w), gate), lanes);
    }
}

/* y = v = x silu(z), then its norm. The part begins at column `at`. */
static inline void norm_group(const gated_norm_args *a, int64_t at, const float *x, const float *z,
                              float *y)
{
    int64_t n = gated_norm_dim(a), i = 0;
    vf sum[2] = {vf_zero(), vf_zero()};
    for (int s = 0; i < n; i += VF, s = !s) {
        int lanes = lanes_left(i, n);
        vf g = vf_load_n(z + i, lanes), e = vf_exp2(vf_mul(g, vf_set1(-LOG2E)));
        vf v = vf_mul(vf_load_n(x + i, lanes), vf_div(g, vf_add(vf_set1(1), e)));
        vf_store_n(y + i, v, lanes);
        sum[s] = vf_fma(v, v, sum[s]);
    }
    vf inv = vf_set1(1 / sqrtf(vf_sum(vf_add(sum[0], sum[1])) / (float)n + a->eps));
    for (i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf w = vf_mul(vf_load_any(a->weight->data, a->weight->dtype, at + i, lanes), inv);
        vf_store_n(y + i, vf_mul(vf_load_n(y + i, lanes), w), lanes);
    }
}

static vt_status gated_norm_run(const void *args, const vt_lane *lane)
{
    const gated_norm_args *a = args;
    int64_t dim = gated_norm_dim(a), heads = a->y->dim[1] / dim, begin, end;
    vt_lane_share(lane, a->y->dim[0] * heads, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / heads, at = unit % heads * dim;
        const float *x = row_f32(a->x, t) + at, *z = row_f32(a->z, t) + at;
        if (a->groups > 0)
            norm_group(a, at, x, z, row_f32(a->y, t) + at);
        else
            norm_head(a, x, z, row_f32(a->y, t) + at);
    }
    return VT_OK;
}

static bool gated_norm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const gated_norm_args *a = args;
    return a->x->dtype == VT_F32 && a->z->dtype == VT_F32 && a->y->dtype == VT_F32 &&
           dtype_is_float(a->weight->dtype);
}

static void gated_norm_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const gated_norm_args *a = args;
    int64_t dim = gated_norm_dim(a), heads = a->y->dim[1] / dim, rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld heads of %lld", (long long)rows, (long long)heads,
                 (long long)dim);
    out->tile[1] = (int32_t)dim;
    vt_cut_cpu(out, t, rows * heads, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(gated_norm) = {SIMD_IMPL(gated_norm, gated_norm_supports)};
