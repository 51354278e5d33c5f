/* A row of RMSNorm over the vector type: what rmsnorm and its form over ranks share (see
 * simd_portable.h for how this header is compiled). A row is summed in four interleaved partial
 * sums. */
#include "ops/simd_any.h"

enum { NORM_SUMS = 4 };

/* Returns the sum of the squares of x[0..n). */
static inline float square_sum(const float *x, int64_t n)
{
    vf sum[NORM_SUMS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + NORM_SUMS * VF <= n; i += NORM_SUMS * VF)
        for (int s = 0; s < NORM_SUMS; s++) {
            vf v = vf_load(x + i + s * VF);
            sum[s] = vf_fma(v, v, sum[s]);
        }
    for (int s = 0; i < n; i += VF, s++) {
        vf v = vf_load_n(x + i, lanes_left(i, n));
        sum[s] = vf_fma(v, v, sum[s]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3])));
}

/* y[i] = x[i] * inv * (weight[i] + plus) */
static inline void scale_row(const float *x, const vt_tensor *weight, float plus, float inv,
                             float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf w = vf_add(vf_load_any(weight->data, weight->dtype, i, lanes), vf_set1(plus));
        vf_store_n(y + i, vf_mul(vf_mul(vf_load_n(x + i, lanes), vf_set1(inv)), w), lanes);
    }
}
