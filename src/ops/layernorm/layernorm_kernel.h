/* LayerNorm over the vector type: see simd_portable.h for how this header is compiled. Rows are
 * dealt out to the workers. One worker sums a row in four interleaved partial sums, so its bits do
 * not depend on the number of workers. The first pass finds the mean, the second (from L1) the
 * variance around it: the difference of two sums would lose digits where the mean is large. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/layernorm/layernorm.h"
#include "ops/layernorm/layernorm_impls.h"
#include "ops/simd_any.h"

enum { NORM_SUMS = 4 };

static inline float sum_of(const vf sum[NORM_SUMS])
{
    return vf_sum(vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3])));
}

static inline float mean_of(const float *x, int64_t n)
{
    vf sum[NORM_SUMS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + NORM_SUMS * VF <= n; i += NORM_SUMS * VF)
        for (int s = 0; s < NORM_SUMS; s++)
            sum[s] = vf_add(vf_load(x + i + s * VF), sum[s]);
    for (int s = 0; i < n; i += VF, s++)
        sum[s] = vf_add(vf_load_n(x + i, lanes_left(i, n)), sum[s]);
    return sum_of(sum) / (float)n;
}

/* 1 / sqrt(variance + eps); lanes behind the row's end are 0 and not counted. */
static inline float inverse_deviation(const float *x, int64_t n, float mean, float eps)
{
    vf sum[NORM_SUMS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, m = vf_set1(mean);
    int64_t i = 0;
    for (; i + NORM_SUMS * VF <= n; i += NORM_SUMS * VF)
        for (int s = 0; s < NORM_SUMS; s++) {
            vf v = vf_sub(vf_load(x + i + s * VF), m);
            sum[s] = vf_fma(v, v, sum[s]);
        }
    for (int s = 0; i < n; i += VF, s++) {
        int lanes = lanes_left(i, n);
        vf v = vf_sub(vf_load_n(x + i, lanes), m);
        v = vf_keep_range(v, 0, 0, lanes, 0);
        sum[s] = vf_fma(v, v, sum[s]);
    }
    return 1.0f / sqrtf(sum_of(sum) / (float)n + eps);
}

static vt_status layernorm_run(const void *args, const vt_lane *lane)
{
    const layernorm_args *a = args;
    int64_t n = a->y->dim[1], begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = row_f32(a->x, a->row ? (*a->row)[t] : t);
        float *y = row_f32(a->y, t), mean = mean_of(x, n);
        vf m = vf_set1(mean), inv = vf_set1(inverse_deviation(x, n, mean, a->eps));
        for (int64_t i = 0; i < n; i += VF) {
            int lanes = lanes_left(i, n);
            vf w = vf_load_any(a->weight->data, a->weight->dtype, i, lanes);
            vf b = a->bias ? vf_load_any(a->bias->data, a->bias->dtype, i, lanes) : vf_zero();
            vf v = vf_mul(vf_sub(vf_load_n(x + i, lanes), m), inv);
            vf_store_n(y + i, vf_fma(v, w, b), lanes);
        }
    }
    return VT_OK;
}

static bool layernorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const layernorm_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && dtype_is_float(a->weight->dtype) &&
           (!a->bias || dtype_is_float(a->bias->dtype));
}

static void layernorm_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const layernorm_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_cpu(out, t, rows, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(layernorm) = {SIMD_IMPL(layernorm, layernorm_supports)};
