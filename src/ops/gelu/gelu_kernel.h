/* GELU over the vector type: see simd_portable.h for how this header is compiled.
 *
 *   erfc(z) = t e^(-z^2 + P(t)),  t = 1 / (1 + z / 2),  z >= 0,  P a polynomial of degree 9
 *
 * (Press et al., Numerical Recipes, 6.2, "erfcc": a relative error below 1.2e-7 everywhere.) With
 * z = |v| / sqrt(2), Phi(v) is half of that for v < 0, and 1 less half of that else: no digits
 * cancel. An approximation that is good in absolute terms alone would not do where the result is
 * multiplied with a large `up`. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/gelu/gelu.h"
#include "ops/gelu/gelu_impls.h"
#include "ops/simd_any.h"

enum { GELU_CHUNK = 1024 }; /* elements of a row that are one piece of work */

static inline vf gelu(vf v)
{
    static const float p[] = {0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                              -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
    vf size = vf_max(v, vf_sub(vf_zero(), v));
    vf t = vf_div(vf_set1(1), vf_fma(size, vf_set1(0.35355339f), vf_set1(1)));
    vf q = vf_set1(p[0]);
    for (int i = 1; i < 10; i++)
        q = vf_fma(q, t, vf_set1(p[i]));
    q = vf_fma(vf_mul(v, v), vf_set1(-0.5f), q);
    vf tail = vf_mul(vf_mul(t, vf_set1(0.5f)), vf_exp2(vf_mul(q, vf_set1(LOG2E))));
    /* v < 0: v tail; else v - v tail. Both are max(v, 0) - |v| tail. */
    return vf_sub(vf_max(v, vf_zero()), vf_mul(size, tail));
}

static vt_status gelu_run(const void *args, const vt_lane *lane)
{
    const gelu_args *a = args;
    int64_t n = a->y->dim[1], chunk = GELU_CHUNK, chunks = vt_ceil_div(n, chunk), begin, end;
    vt_lane_share(lane, a->y->dim[0] * chunks, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / chunks, i = unit % chunks * chunk, last = i + chunk < n ? i + chunk : n;
        const float *x = row_f32(a->x, t);
        float *y = row_f32(a->y, t);
        for (; i < last; i += VF) {
            int lanes = lanes_left(i, last);
            vf g = gelu(vf_load_n(x + i, lanes));
            if (a->gated)
                g = vf_mul(g, vf_load_n(x + n + i, lanes));
            vf_store_n(y + i, g, lanes);
        }
    }
    return VT_OK;
}

static bool gelu_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const gelu_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static void gelu_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const gelu_args *a = args;
    int64_t rows = vt_size_rows(a->y, size), n = a->y->dim[1];
    vt_cut_shape(out, "%lld rows of %s%lld", (long long)rows, a->gated ? "2 x " : "", (long long)n);
    out->tile[0] = 1;
    out->tile[1] = GELU_CHUNK;
    vt_cut_cpu(out, t, rows * vt_ceil_div(n, GELU_CHUNK), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(gelu) = {SIMD_IMPL(gelu, gelu_supports)};
