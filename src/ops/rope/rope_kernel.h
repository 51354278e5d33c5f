/* Rotary embedding over the vector type: see simd_portable.h for how this header is compiled. The
 * unit of work is one head of one token, [head_dim], q heads first. A unit is normalised (if the
 * model wants that) and rotated while it is in L1. Interleaved pairs take a scalar path: no model
 * that we support has them after loading. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/rope/rope.h"
#include "ops/rope/rope_impls.h"
#include "ops/simd_any.h"

static inline void norm_head(float *x, int64_t n, const vt_tensor *weight, float plus, float eps)
{
    vf sum = vf_zero();
    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_load_n(x + i, lanes_left(i, n));
        sum = vf_fma(v, v, sum);
    }
    vf inv = vf_set1(1.0f / sqrtf(vf_sum(sum) / (float)n + eps));
    for (int64_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf w = vf_add(vf_load_any(weight->data, weight->dtype, i, lanes), vf_set1(plus));
        vf_store_n(x + i, vf_mul(vf_mul(vf_load_n(x + i, lanes), inv), w), lanes);
    }
}

/* Pairs (i, i + half). */
static inline void rotate_halves(float *x, const float *cos_sin, int half)
{
    for (int i = 0; i < half; i += VF) {
        int lanes = lanes_left(i, half);
        vf a = vf_load_n(x + i, lanes), b = vf_load_n(x + half + i, lanes);
        vf c = vf_load_n(cos_sin + i, lanes), s = vf_load_n(cos_sin + half + i, lanes);
        vf_store_n(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)), lanes);
        vf_store_n(x + half + i, vf_fma(a, s, vf_mul(b, c)), lanes);
    }
}

static inline void rotate_pairs(float *x, const float *cos_sin, int half)
{
    for (int i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cos_sin[i], s = cos_sin[half + i];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}

/* One head [head_dim] of token t, in place. */
static inline void rope_head(const rope_args *a, bool is_q, float *x, int64_t t)
{
    const vt_tensor *norm = is_q ? a->q_norm : a->k_norm;
    const vt_tensor *table = is_q && a->q_cos_sin ? a->q_cos_sin : a->cos_sin;
    const float plus = a->plus_one ? 1 : 0;
    if (norm && !a->norm_after)
        norm_head(x, a->head_dim, norm, plus, a->eps);
    const float *cos_sin = row_f32(table, a->batch->position[t]);
    if (a->interleaved)
        rotate_pairs(x, cos_sin, a->dims / 2);
    else
        rotate_halves(x, cos_sin, a->dims / 2);
    if (norm && a->norm_after)
        norm_head(x, a->head_dim, norm, plus, a->eps);
}

static inline vt_status rope_run(const void *args, const vt_lane *lane)
{
    const rope_args *a = args;
    int64_t d = a->head_dim, n_q = a->q->dim[1] / d, n_k = a->k->dim[1] / d, begin, end;
    vt_lane_share(lane, a->batch->n_tokens * (n_q + n_k), 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / (n_q + n_k), h = unit % (n_q + n_k);
        bool is_q = h < n_q;
        float *x = is_q ? row_f32(a->q, t) + h * d : row_f32(a->k, t) + (h - n_q) * d;
        rope_head(a, is_q, x, t);
    }
    return VT_OK;
}

static bool rope_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rope_args *a = args;
    return a->q->dtype == VT_F32 && a->k->dtype == VT_F32 && a->cos_sin->dtype == VT_F32 &&
           (!a->q_norm || dtype_is_float(a->q_norm->dtype)) &&
           (!a->k_norm || dtype_is_float(a->k_norm->dtype));
}

static inline void rope_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const rope_args *a = args;
    int64_t tokens = vt_size_rows(a->q, size), heads = (a->q->dim[1] + a->k->dim[1]) / a->head_dim;
    vt_cut_shape(out, "%lld tokens, %lld heads of %d", (long long)tokens, (long long)heads,
                 a->head_dim);
    vt_cut_cpu(out, t, tokens * heads, (int32_t)(VF * sizeof(float)));
}

#ifndef SIMD_PART
const vt_impl SIMD_ROW(rope) = {SIMD_IMPL(rope, rope_supports)};
#endif
