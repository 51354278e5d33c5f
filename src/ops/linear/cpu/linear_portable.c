/* linear on any machine: each weight row is dequantised once to fp32 and multiplied by every
 * token's activations.
 *
 *   worker's rows ──> row [cols] fp32, in the worker's part of the workspace
 *                       └─ x[0] . row, x[1] . row, ...      one dot product a token
 *
 * Activations are not quantised here. Without an 8-bit dot product that would only lose accuracy. A
 * dot product keeps 16 partial sums, k modulo 16, so that compilers can use the machine's vectors,
 * whatever their length, without reordering anything. The partial sums are added pairwise at the
 * end. */
#include <math.h>

#include "ops/linear/linear_impl.h"

enum { LANES = 16 };

static float dot(const float *w, const float *x, int64_t n)
{
    float sum[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int i = 0; i < LANES; i++)
            sum[i] += w[k + i] * x[k + i];
    for (int i = 0; k + i < n; i++)
        sum[i] += w[k + i] * x[k + i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

static float activation(linear_epilogue e, float g)
{
    if (e == LINEAR_SWIGLU)
        return g / (1 + expf(-g));
    return 0.5f * g * (1 + tanhf(0.79788456f * (g + 0.044715f * g * g * g)));
}

/* The value of a pair. */
static float gated(const linear_args *a, float g, float u)
{
    if (a->epilogue != LINEAR_CLAMPED)
        return activation(a->epilogue, g) * u;
    g = g < a->limit ? g : a->limit;
    u = u < a->limit ? u : a->limit;
    u = u > -a->limit ? u : -a->limit;
    return g / (1 + expf(-1.702f * g)) * (u + 1);
}

static bool portable_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const linear_args *a = args; /* x and y are missing while weights are being packed */
    return (!a->x || a->x->dtype == VT_F32) && (!a->y || a->y->dtype == VT_F32);
}

static size_t row_bytes(const linear_args *a)
{
    return vt_round_up((size_t)a->w->cols * sizeof(float), VT_CACHE_LINE);
}

static size_t portable_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    return 2 * row_bytes(args) * (size_t)limits->n_workers;
}

static vt_status portable_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    const vt_weight *w = a->w;
    bool glu = a->epilogue != LINEAR_NONE;
    int64_t n = glu ? w->rows / 2 : w->rows, cols = w->cols, begin, end;
    float *row = (float *)((char *)lane->workspace + 2 * row_bytes(a) * (size_t)lane->worker);
    float *up = (float *)((char *)row + row_bytes(a));

    vt_lane_share(lane, n, VT_CACHE_LINE / sizeof(float), &begin, &end);
    for (int64_t j = begin; j < end; j++) {
        linear_weight_row(w, j, row);
        if (glu)
            linear_weight_row(w, n + j, up);
        float bias = a->bias ? linear_float_at(a->bias, j) : 0;
        float up_bias = a->bias && glu ? linear_float_at(a->bias, n + j) : 0;
        for (int64_t t = 0; t < a->x->dim[0]; t++) {
            const float *x = (const float *)a->x->data + t * a->x->row_stride;
            float v = a->scale * dot(row, x, cols) + bias;
            if (glu)
                v = gated(a, v, a->scale * dot(up, x, cols) + up_bias);
            if (a->residual)
                v += ((const float *)a->residual->data)[t * a->residual->row_stride + j];
            ((float *)a->y->data)[t * a->y->row_stride + j] = v;
        }
    }
    return VT_OK;
}

static void portable_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const linear_args *a = args;
    int64_t n = a->epilogue != LINEAR_NONE ? a->w->rows / 2 : a->w->rows,
            grain = VT_CACHE_LINE / sizeof(float);
    linear_cut_shape(a, size, out);
    out->tile[1] = (int32_t)grain;
    vt_cut_cpu(out, t, vt_ceil_div(n, grain), 0);
}

const vt_impl linear_portable = {
    .name = "portable",
    .device = VT_DEVICE_CPU,
    .isa = VT_ISA_PORTABLE,
    .supports = portable_supports,
    .run = portable_run,
    .describe = portable_describe,
    .workspace = portable_workspace,
};
