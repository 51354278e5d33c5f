/* Gates over the vector type: see simd_portable.h for how this header is compiled. Heads, or rows,
 * are dealt out to the workers; one worker sums a row, in two interleaved partial sums. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "ops/sigmoid_gate/sigmoid_gate_impls.h"
#include "ops/simd_any.h"

static inline vf sigmoid(vf g)
{
    return vf_div(vf_set1(1), vf_add(vf_set1(1), vf_exp2(vf_mul(g, vf_set1(-LOG2E)))));
}

static vt_status head_split_run(const void *args, const vt_lane *lane)
{
    const head_split_args *a = args;
    int64_t dim = a->dim, heads = a->y->dim[1] / dim, begin, end;
    vt_lane_share(lane, a->y->dim[0] * heads, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / heads, h = unit % heads;
        const float *x = row_f32(a->x, t) + 2 * h * dim;
        float *y = row_f32(a->y, t) + h * dim;
        for (int64_t i = 0; i < dim; i += VF)
            vf_store_n(y + i, vf_load_n(x + i, lanes_left(i, dim)), lanes_left(i, dim));
    }
    return VT_OK;
}

static vt_status head_gate_run(const void *args, const vt_lane *lane)
{
    const head_gate_args *a = args;
    int64_t dim = a->dim, heads = a->y->dim[1] / dim, begin, end;
    vt_lane_share(lane, a->y->dim[0] * heads, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / heads, h = unit % heads;
        const float *g = row_f32(a->x, t) + (2 * h + 1) * dim;
        float *y = row_f32(a->y, t) + h * dim;
        for (int64_t i = 0; i < dim; i += VF) {
            int lanes = lanes_left(i, dim);
            vf_store_n(y + i, vf_mul(vf_load_n(y + i, lanes), sigmoid(vf_load_n(g + i, lanes))),
                       lanes);
        }
    }
    return VT_OK;
}

/* sum of w[j] * x[j] */
static inline float row_dot(const vt_tensor *w, const float *x, int64_t n)
{
    vf sum[2] = {vf_zero(), vf_zero()};
    int64_t i = 0;
    for (int s = 0; i < n; i += VF, s = !s) {
        int lanes = lanes_left(i, n);
        sum[s] = vf_fma(vf_load_any(w->data, w->dtype, i, lanes), vf_load_n(x + i, lanes), sum[s]);
    }
    return vf_sum(vf_add(sum[0], sum[1]));
}

static vt_status row_gate_run(const void *args, const vt_lane *lane)
{
    const row_gate_args *a = args;
    int64_t n = a->y->dim[1], begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        vf gate = sigmoid(vf_set1(row_dot(a->w, row_f32(a->x, t), a->w->dim[0])));
        float *y = row_f32(a->y, t);
        for (int64_t i = 0; i < n; i += VF) {
            int lanes = lanes_left(i, n);
            vf_store_n(y + i, vf_mul(vf_load_n(y + i, lanes), gate), lanes);
        }
    }
    return VT_OK;
}

static bool head_gate_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const head_gate_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static bool row_gate_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const row_gate_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && dtype_is_float(a->w->dtype);
}

static void head_gate_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const head_gate_args *a = args;
    int64_t heads = a->y->dim[1] / a->dim, rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld heads of %d", (long long)rows, (long long)heads, a->dim);
    vt_cut_cpu(out, t, rows * heads, (int32_t)(VF * sizeof(float)));
}

static void row_gate_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const row_gate_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld, gated from %lld", (long long)rows,
                 (long long)a->y->dim[1], (long long)a->w->dim[0]);
    vt_cut_cpu(out, t, rows, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(head_split) = {.name = SIMD_NAME,
                                      .device = VT_DEVICE_CPU,
                                      .isa = SIMD_ISA,
                                      .supports = head_gate_supports,
                                      .run = head_split_run,
                                      .describe = head_gate_describe};

const vt_impl SIMD_ROW(head_gate) = {SIMD_IMPL(head_gate, head_gate_supports)};

const vt_impl SIMD_ROW(row_gate) = {SIMD_IMPL(row_gate, row_gate_supports)};
