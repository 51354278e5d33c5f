/* Gated activation over the vector type: see simd_portable.h for how this header is compiled.
 *
 *   silu(g) = g / (1 + e^-g)
 *   gelu_tanh(g) = g / (1 + e^(-2 u)),  u = sqrt(2/pi) (g + 0.044715 g^3)
 *
 * (0.5 (1 + tanh u) is the logistic function of 2 u.) exp2 clamps, so g far below 0 gives a tiny
 * number and not 0 / 0. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/silu_mul/silu_mul.h"
#include "ops/silu_mul/silu_mul_impls.h"
#include "ops/simd_any.h"

enum { SILU_CHUNK = 1024 }; /* elements of a row that are one piece of work */

static inline vf gate(vf g, vt_activation activation)
{
    vf u = g;
    if (activation == VT_ACT_GELU_TANH)
        u = vf_mul(vf_mul(g, vf_set1(1.59576912f)),
                   vf_fma(vf_mul(g, g), vf_set1(0.044715f), vf_set1(1)));
    vf e = vf_exp2(vf_mul(u, vf_set1(-LOG2E)));
    return vf_div(g, vf_add(vf_set1(1), e));
}

static vt_status silu_mul_run(const void *args, const vt_lane *lane)
{
    const silu_mul_args *a = args;
    int64_t n = a->y->dim[1], chunk = SILU_CHUNK, chunks = vt_ceil_div(n, chunk), begin, end;
    vt_lane_share(lane, a->y->dim[0] * chunks, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / chunks, i = unit % chunks * chunk, last = i + chunk < n ? i + chunk : n;
        const float *x = row_f32(a->x, t), *up = a->up ? row_f32(a->up, t) : x + n;
        float *y = row_f32(a->y, t);
        for (; i < last; i += VF) {
            int lanes = lanes_left(i, last);
            vf g = gate(vf_load_n(x + i, lanes), a->activation);
            vf_store_n(y + i, vf_mul(g, vf_load_n(up + i, lanes)), lanes);
        }
    }
    return VT_OK;
}

static bool silu_mul_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const silu_mul_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static void silu_mul_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const silu_mul_args *a = args;
    int64_t rows = vt_size_rows(a->y, size), n = a->y->dim[1];
    vt_cut_shape(out, "%lld rows of 2 x %lld", (long long)rows, (long long)n);
    out->tile[0] = 1;
    out->tile[1] = SILU_CHUNK;
    vt_cut_cpu(out, t, rows * vt_ceil_div(n, SILU_CHUNK), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(silu_mul) = {SIMD_IMPL(silu_mul, silu_mul_supports)};
