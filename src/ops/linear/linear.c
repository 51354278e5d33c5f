/* The linear op's card: what it costs, its reference, cases, implementations.
 *
 *   linear.h            the contract
 *   linear.c            this file
 *   linear_pack.h/.c    the weight layout that the CPU's vector rows share
 *   cpu/                rows of the CPU: linear_portable.c for any type and machine; the kernels of
 *                       linear_simd.h, compiled once per instruction set
 *   linear_cuda.c       rows of a GPU for dense weights, and how one is chosen
 *   quant/              rows of a GPU for weights in quantised tiles
 *
 * Tolerance. Cases with a quantised weight draw every block of 32 activations as d * q with
 * integers |q| <= 127 of which one is +-127. Then quantising the activations loses nothing, and
 * results differ only by the order of fp32 sums. So a wrong sign, scale or index cannot hide behind
 * quantisation noise. For activations that are not on such a grid, rounding adds an error of
 * variance d^2 / 12 with d = max|x| / 127 of the block: about 0.5 % of the result's deviation for
 * normally distributed x (test_linear_quantised_activations_cost_half_a_percent measures it). */
#include "ops/linear/linear.h"

#include <math.h>
#include <stdlib.h>

#include "base/quant.h"
#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear_impl.h"

/* ---- cost ---- */

static int64_t part_bytes(const vt_weight *w)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < w->n_parts; i++)
        sum += w->part[i]->dim[0] * vt_dtype_row_bytes(w->dtype, w->cols) +
               (w->scale[i] ? vt_tensor_bytes(w->scale[i]) : 0);
    return sum;
}

static vt_cost linear_cost(const void *args, const vt_batch *batch)
{
    const linear_args *a = args;
    const vt_weight *w = a->w;
    int64_t tokens = vt_batch_rows(a->x, batch);
    if (tokens == 0)
        return (vt_cost){0};
    int64_t outputs = tokens * w->rows;
    vt_cost c = {
        .read = {.weights = part_bytes(w), .activations = vt_batch_bytes(a->x, batch)},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
    };
    int64_t products = 2 * outputs * w->cols;
    /* on a GPU: tensor cores, for every type of weights; on a CPU: AMX, where it is there */
    if (a->x->dtype == VT_BF16 || w->dtype == VT_BF16)
        c.flops.bf16 = products;
    else if (vt_dtype_quantised(w->dtype))
        c.flops.int8 = products;
    else
        c.flops.fp32 = products;
    if (a->bias) {
        c.read.weights += vt_batch_bytes(a->bias, batch);
        c.flops.fp32 += outputs;
    }
    if (a->residual) {
        c.read.activations += vt_batch_bytes(a->residual, batch);
        c.flops.fp32 += vt_batch_elems(a->y, batch);
    }
    if (a->epilogue != LINEAR_NONE) /* exp, add, divide, multiply */
        c.flops.fp32 += 4 * vt_batch_elems(a->y, batch);
    return c;
}

/* ---- reference ---- */

float linear_float_at(const vt_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case VT_F16:
        return vt_f16_to_f32(((const uint16_t *)t->data)[i]);
    case VT_BF16:
        return vt_bf16_to_f32(((const uint16_t *)t->data)[i]);
    default:
        return ((const float *)t->data)[i];
    }
}

float linear_scale_at(const vt_tensor *scale, int64_t row, int64_t col)
{
    if (!scale)
        return 1;
    bool blocks = vt_tensor_elems(scale) > 1;        /* [rows / 128, cols / 128], rounded up */
    int64_t across = blocks ? scale->row_stride : 0; /* a scale may be a view, like its matrix */
    return linear_float_at(
        scale, blocks ? row / LINEAR_SCALE_BLOCK * across + col / LINEAR_SCALE_BLOCK : 0);
}

int32_t linear_part_of(const vt_weight *w, int64_t *row)
{
    int32_t i = 0;
    while (*row >= w->part[i]->dim[0])
        *row -= w->part[i++]->dim[0];
    return i;
}

void linear_weight_row(const vt_weight *w, int64_t row, float *dst)
{
    int32_t i = linear_part_of(w, &row);
    vt_dequant_row(w->dtype, linear_part_row(w->part[i], row), dst, w->cols);
    for (int64_t k = 0; w->scale[i] && k < w->cols;) {
        float scale = linear_scale_at(w->scale[i], row, k);
        do
            dst[k++] *= scale;
        while (k < w->cols && k % LINEAR_SCALE_BLOCK);
    }
}

static double activation(linear_epilogue e, double g)
{
    if (e == LINEAR_SWIGLU)
        return g / (1 + exp(-g));
    return 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

/* The value of a pair. */
static double gated(const linear_args *a, double g, double u)
{
    double limit = (double)a->limit;
    if (a->epilogue != LINEAR_CLAMPED)
        return activation(a->epilogue, g) * u;
    g = fmin(g, limit);
    return g / (1 + exp(-1.702 * g)) * (fmax(fmin(u, limit), -limit) + 1);
}

/* scale * x[t] . W[row] + bias[row], in double. */
static double dot_reference(const linear_args *a, int64_t t, int64_t row, const float *w)
{
    const float *x = (const float *)a->x->data + t * a->x->row_stride;
    double part[4] = {0}; /* independent: a single sum would wait for every addition */
    int64_t k = 0, cols = a->w->cols;
    for (; k + 4 <= cols; k += 4)
        for (int i = 0; i < 4; i++)
            part[i] += (double)x[k + i] * (double)w[k + i];
    for (; k < cols; k++)
        part[0] += (double)x[k] * (double)w[k];
    double sum = part[0] + part[1] + (part[2] + part[3]);
    sum *= (double)a->scale;
    return a->bias ? sum + (double)linear_float_at(a->bias, row) : sum;
}

static void linear_reference(const void *args)
{
    const linear_args *a = args;
    bool glu = a->epilogue != LINEAR_NONE;
    int64_t n = glu ? a->w->rows / 2 : a->w->rows;
    float *w = vt_calloc((size_t)a->w->cols, 2 * sizeof *w), *up = w + a->w->cols;
    for (int64_t j = 0; w && j < n; j++) {
        linear_weight_row(a->w, j, w);
        if (glu)
            linear_weight_row(a->w, n + j, up);
        for (int64_t t = 0; t < a->x->dim[0]; t++) {
            double v = dot_reference(a, t, j, w);
            if (glu)
                v = gated(a, v, dot_reference(a, t, n + j, up));
            if (a->residual)
                v += (double)((const float *)a->residual->data)[t * a->residual->row_stride + j];
            ((float *)a->y->data)[t * a->y->row_stride + j] = (float)v;
        }
    }
    free(w);
}

/* ---- cases ---- */

enum {
    TOKENS,
    TYPE,
    COLS,
    ROWS,
    ROWS2,
    ROWS3,
    EPILOGUE,
    BIAS,
    RESIDUAL,
    SLICED,
    SCALES,
    LOGITS,
    NORM
};

static const char *const epilogues[] = {[LINEAR_NONE] = "none",
                                        [LINEAR_SWIGLU] = "swiglu",
                                        [LINEAR_GEGLU] = "geglu",
                                        [LINEAR_CLAMPED] = "clamped",
                                        NULL};

static const vt_field linear_fields[] = {
    [TOKENS] = {"tokens", 1, false, 1 << 16, .zero = true, .grows = VT_GROWS_TOKENS},
    [TYPE] = {"type", VT_BF16, true},
    [COLS] = {"cols", 4096, false, 1 << 17},
    [ROWS] = {"rows", 4096},
    [ROWS2] = {"rows2", 0},
    [ROWS3] = {"rows3", 0},
    [EPILOGUE] = {"epilogue", 0, false, LINEAR_CLAMPED, epilogues},
    [BIAS] = {"bias", 0, false, 1},
    [RESIDUAL] = {"residual", 0, false, 1},
    [SLICED] = {"sliced", 0, false, 1},
    [SCALES] = {"scales", 0, false, 2, case_scale_words},
    [LOGITS] = {"logits", 0, false, 1},
    [NORM] = {"norm", 0, false, 1},
};

static const char *linear_refuses(const vt_case *c)
{
    const int64_t *p = c->p;
    if (!vt_dtype_weight((vt_dtype)p[TYPE]) || p[COLS] % vt_dtype_get((vt_dtype)p[TYPE])->block)
        return "type: cols is a multiple of its block of columns";
    if (p[EPILOGUE] && (p[ROWS2] != p[ROWS] || p[ROWS3]))
        return "epilogue: a gate and an up of equal numbers of rows, rows2 = rows";
    if (p[ROWS3] && !p[ROWS2])
        return "rows3: not without rows2";
    if (p[SCALES] && p[TYPE] != VT_FP8_E4M3)
        return "scales: of fp8 weights only";
    if (p[LOGITS] && (p[RESIDUAL] || p[EPILOGUE]))
        return "logits: without residual and epilogue";
    if (p[NORM] && p[RESIDUAL])
        return "norm: without residual";
    return (p[ROWS] + p[ROWS2] + p[ROWS3]) * p[COLS] > (int64_t)1 << 32
               ? "rows: rows times cols is at most 2^32"
               : NULL;
}

/* rows2, rows3: rows of further parts; logits: the result is F32 on a GPU too, as for the head;
 * norm: x comes with what it is the norm of */

/* Activations whose quantisation to int8 in blocks of 32 is exact (see the essay above). With
 * `powers` d is a power of two, so that BF16 has them. */
static void fill_on_grid(vt_tensor *x, bool powers, uint64_t *rng)
{
    for (int64_t t = 0; t < x->dim[0]; t++)
        for (int64_t k = 0; k < x->dim[1]; k += 32) {
            float *b = (float *)x->data + t * x->row_stride + k;
            float d = (0.5f + case_uniform(rng)) / 64;
            if (powers)
                d = d < 1.0f / 64 ? 1.0f / 128 : 1.0f / 64;
            for (int i = 0; i < 32; i++) {
                float q = rintf(case_normal(rng) * 45);
                b[i] = d * fminf(fmaxf(q, -127), 127);
            }
            b[case_random(rng) % 32] = case_random(rng) & 1 ? 127 * d : -127 * d;
        }
}

/* Activations whose conversion to E4M3 with a scale for 128 columns is exact: units have one value
 * of 448 times a power of two, the others have four bits. */
static void fill_on_e4m3(vt_tensor *x, uint64_t *rng)
{
    for (int64_t t = 0; t < x->dim[0]; t++)
        for (int64_t k = 0; k < x->dim[1]; k += LINEAR_SCALE_BLOCK) {
            int64_t left = x->dim[1] - k, n = left < LINEAR_SCALE_BLOCK ? left : LINEAR_SCALE_BLOCK;
            float *b = (float *)x->data + t * x->row_stride + k;
            float d = ldexpf(1, -7 - (int)(case_random(rng) % 4));
            for (int64_t i = 0; i < n; i++) {
                int exponent;
                float m = frexpf(fminf(fmaxf(case_normal(rng) * 100, -448), 448), &exponent);
                int bits = exponent > -5 ? 4 : exponent + 9; /* subnormals: multiples of 2^-9 */
                b[i] = d * ldexpf(rintf(ldexpf(m, bits)), exponent - bits);
            }
            b[case_random(rng) % (uint64_t)n] = case_random(rng) & 1 ? 448 * d : -448 * d;
        }
}

/* [tokens, cols] fp32; with `sliced` columns of a wider tensor. */
static vt_tensor *activations(vt_arena *arena, int64_t tokens, int64_t cols, bool sliced)
{
    if (!sliced)
        return case_tensor_2d(arena, VT_F32, tokens, cols);
    return case_slice(arena, case_tensor_2d(arena, VT_F32, tokens, cols + 24), 8, cols);
}

/* Makes x what it is the norm of, in values that BF16 has, and then its norm. The norm's weights
 * are powers of two, so that before * weight is exact in BF16; they differ in sign alone within a
 * block of activations that are quantised together. eps is large enough to be seen. Returns false
 * when out of memory. */
static bool add_norm(vt_arena *arena, linear_args *a, vt_tensor *x, uint64_t *rng)
{
    int64_t tokens = x->dim[0], cols = x->dim[1];
    vt_tensor *before = case_tensor_2d(arena, VT_F32, tokens, cols);
    vt_tensor *norm = case_tensor_1d(arena, VT_F32, cols);
    a->before = before;
    a->norm = norm;
    a->eps = 2;
    a->plus_one = case_random(rng) & 1;
    if (!before || !norm)
        return false;
    float size = 1;
    for (int64_t k = 0; k < cols; k++) {
        if (k % LINEAR_SCALE_BLOCK == 0)
            size = case_random(rng) & 1 ? 0.5f : 0.25f;
        ((float *)norm->data)[k] = (case_random(rng) & 1 ? size : -size) - (float)a->plus_one;
    }
    for (int64_t t = 0; t < tokens; t++) {
        float *b = (float *)before->data + t * cols, *to = (float *)x->data + t * x->row_stride;
        double squares = 0;
        for (int64_t k = 0; k < cols; k++) {
            b[k] = vt_bf16_to_f32(vt_f32_to_bf16(4 * to[k]));
            squares += (double)b[k] * (double)b[k];
        }
        double by = 1 / sqrt(squares / (double)cols + (double)a->eps);
        for (int64_t k = 0; k < cols; k++)
            to[k] = (float)((double)b[k] * by *
                            ((double)((const float *)norm->data)[k] + a->plus_one));
    }
    return true;
}

static void *linear_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                              vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    uint64_t rng = seed;
    vt_dtype dtype = (vt_dtype)p[TYPE];
    bool paired = p[EPILOGUE] != LINEAR_NONE;
    int32_t n_parts = 1 + (p[ROWS2] > 0) + (p[ROWS3] > 0);
    linear_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_weight *w = case_weight(arena, dtype, n_parts, &p[ROWS], p[COLS], paired, &rng);
    vt_tensor *x = activations(arena, p[TOKENS], p[COLS], p[SLICED]);
    if (!a || !w || !x)
        return NULL;
    int64_t n = paired ? w->rows / 2 : w->rows;
    vt_tensor *y = activations(arena, p[TOKENS], n, p[SLICED]);
    vt_tensor *bias = case_fill(arena, case_tensor_1d(arena, VT_F32, w->rows), 0, 1, &rng);
    vt_tensor *residual = case_fill(arena, case_tensor_2d(arena, VT_F32, p[TOKENS], n), 0, 1, &rng);
    if (!y || !bias || !residual)
        return NULL;
    if (vt_dtype_quantised(dtype))
        fill_on_grid(x, p[NORM], &rng);
    else if (dtype == VT_FP8_E4M3 && p[SCALES] == CASE_SCALE_BLOCKS)
        fill_on_e4m3(x, &rng);
    else if (!case_fill(arena, x, 0, 1, &rng))
        return NULL;
    if (p[SCALES] && !case_scales(arena, w, p[SCALES] == CASE_SCALE_BLOCKS, &rng))
        return NULL;
    *a = (linear_args){.x = x,
                       .w = w,
                       .bias = p[BIAS] ? bias : NULL,
                       .residual = p[RESIDUAL] ? residual : NULL,
                       .y = y,
                       .epilogue = (linear_epilogue)p[EPILOGUE],
                       .limit = 0.7f,
                       .scale = p[BIAS] ? 0.5f : 1};
    if (p[LOGITS])
        y->follows = VT_FOLLOWS_ROWS;
    if (p[NORM] && !add_norm(arena, a, x, &rng))
        return NULL;
    outputs[0] = y;
    *n_outputs = 1;
    return a;
}

/* On a GPU gate and up are one matrix, and a case has them as two. Of a large weight each part
 * keeps the same share of its rows, in whole tiles. */
static void linear_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const linear_args *a = args;
    const vt_weight *w = a->w;
    bool joined = a->epilogue != LINEAR_NONE && w->n_parts == 1;
    int64_t most = most_weights / w->cols;
    p[TOKENS] = vt_batch_rows(a->y, batch);
    p[TYPE] = w->dtype;
    p[COLS] = w->cols;
    for (int32_t i = 0; i < w->n_parts + joined; i++) {
        p[ROWS + i] = joined ? w->rows / 2 : w->part[i]->dim[0];
        if (w->rows > most)
            p[ROWS + i] = p[ROWS + i] * most / w->rows / 128 * 128 + 128;
    }
    p[EPILOGUE] = a->epilogue;
    p[BIAS] = a->bias != NULL;
    p[RESIDUAL] = a->residual != NULL;
    p[SCALES] = case_scales_of(w);
    p[LOGITS] = a->y->follows == VT_FOLLOWS_ROWS;
    p[NORM] = a->before != NULL;
}

static const char *const linear_cases[] = {
    "tokens=1 type=f32|f16|bf16|fp8 cols=67 rows=33",
    "tokens=17 type=f32|f16|bf16|fp8 cols=67 rows=48 rows2=9 rows3=10 bias=1 sliced=1",
    "tokens=3 type=f32|f16|bf16|fp8 cols=67 rows=21 rows2=21 epilogue=swiglu",
    "tokens=33 type=f32|f16|bf16|fp8 cols=67 rows=40 residual=1",
    "tokens=1 type=q8_0|q4_0|q4_1|q5_0|q5_1 cols=96 rows=33",
    "tokens=17 type=q8_0|q4_0|q4_1|q5_0|q5_1 cols=96 rows=48 rows2=9 rows3=10 bias=1 sliced=1",
    "tokens=3 type=q8_0|q4_0|q4_1|q5_0|q5_1 cols=96 rows=21 rows2=21 epilogue=swiglu",
    "tokens=33 type=q8_0|q4_0|q4_1|q5_0|q5_1 cols=96 rows=40 residual=1",
    "tokens=1 type=q4_k|q5_k|q6_k cols=512 rows=33",
    "tokens=17 type=q4_k|q5_k|q6_k cols=512 rows=48 rows2=9 rows3=10 bias=1 sliced=1",
    "tokens=3 type=q4_k|q5_k|q6_k cols=512 rows=21 rows2=21 epilogue=swiglu",
    "tokens=33 type=q4_k|q5_k|q6_k cols=512 rows=40 residual=1",
    "tokens=1|17|33 type=iq4_nl|mxfp4 cols=96 rows=48 bias=1",
    "tokens=40 type=q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl|mxfp4 cols=384 rows=72 residual=1",
    "tokens=70 type=q4_0|q5_1 cols=640 rows=136 rows2=136 epilogue=swiglu",
    "tokens=1|17|33 type=q3_k|q2_k|iq4_xs cols=512 rows=33 rows2=9 rows3=10 bias=1",
    "tokens=3 type=q3_k|q2_k|iq4_xs cols=256 rows=21 rows2=21 epilogue=swiglu",
    "tokens=3 type=iq4_nl|mxfp4 cols=160 rows=21 rows2=21 epilogue=swiglu",
    "tokens=5 type=fp8 cols=200 rows=150 scales=blocks",
    "tokens=35 type=fp8 cols=256 rows=140 rows2=140 epilogue=swiglu scales=blocks",
    "tokens=1 type=fp8 cols=300 rows=50 scales=blocks",
    "tokens=17 type=fp8 cols=136 rows=150 rows2=9 rows3=140 scales=blocks",
    "tokens=3 type=fp8 cols=67 rows=21 rows2=21 epilogue=swiglu scales=one",
    "tokens=9 type=q4_1 cols=64 rows=16 rows2=16 epilogue=geglu bias=1",
    "tokens=6 type=bf16 cols=96 rows=40 rows2=40 epilogue=clamped bias=1",
    "tokens=0 type=q4_1 cols=64 rows=16",
    "tokens=1|3|4|5 type=bf16 cols=200|1000 rows=150 rows2=9 rows3=140 bias=1 norm=1",
    "tokens=1|2|4 type=bf16 cols=1096 rows=90 rows2=90 epilogue=swiglu norm=1",
    "tokens=1|2|3 type=bf16 cols=2560 rows=40 rows2=40 epilogue=geglu norm=1",
    "tokens=1|2|4 type=q4_0|q8_0|q5_1|mxfp4 cols=96 rows=33 rows2=9 bias=1 norm=1",
    "tokens=2|3 type=q4_0|q8_0|mxfp4 cols=1376 rows=21 rows2=21 epilogue=swiglu norm=1",
    "tokens=1|2|3|5 type=q4_k|q6_k|q2_k cols=512 rows=48 rows2=9 rows3=10 norm=1",
    "tokens=1|4 type=q4_k|q6_k|iq4_xs cols=768 rows=21 rows2=21 epilogue=geglu bias=1 norm=1",
    "tokens=1|2|4 type=fp8 cols=200 rows=150 norm=1 scales=blocks|one",
    "tokens=1|3 type=fp8 cols=648 rows=90 rows2=90 epilogue=swiglu norm=1 scales=blocks|one",
    /* SmolLM2-135M: qkv, o, gate+up, down, head */
    "*tokens=1|64|512 type=q4_1 cols=576 rows=576 rows2=192 rows3=192",
    "*tokens=1 type=q4_1 cols=576 rows=576 residual=1",
    "*tokens=1|64|512 type=q4_1 cols=576 rows=1536 rows2=1536 epilogue=swiglu",
    "*tokens=1|512 type=q4_1 cols=1536 rows=576 residual=1",
    "*tokens=1 type=q8_0 cols=576 rows=49152",
    /* Qwen3-0.6B */
    "*tokens=1|64 type=bf16 cols=1024 rows=2048 rows2=1024 rows3=1024",
    "*tokens=1 type=bf16 cols=1024 rows=2048 rows2=1024 rows3=1024 norm=1",
    "*tokens=1 type=q4_k cols=1024 rows=3072 rows2=3072 epilogue=swiglu",
    "*tokens=64 type=q6_k cols=3072 rows=1024 residual=1",
    /* Qwen3-8B */
    "*tokens=1 type=q4_k cols=4096 rows=4096 residual=1",
    "*tokens=1 type=q4_k|q8_0|fp8 cols=4096 rows=4096 rows2=1024 rows3=1024 norm=1",
    "*tokens=1 type=q4_k|q8_0|fp8 cols=4096 rows=12288 rows2=12288 epilogue=swiglu norm=1",
    "*tokens=8 type=q8_0 cols=4096 rows=4096 rows2=1024 rows3=1024",
    "*tokens=64 type=fp8 cols=4096 rows=4096 residual=1 scales=blocks",
    NULL,
};

#define ANY_LINEAR                                                \
    "tokens=1..65|~200 rows=~700 rows2=0|rows|~100 rows3=0|~100 " \
    "epilogue=none|none|swiglu|geglu bias=0|1 residual=0|1 logits=0|0|0|1 "

#define NORMED                                              \
    "tokens=1..6 rows=~700 rows2=0|rows|~100 rows3=0|~100 " \
    "epilogue=none|swiglu|geglu bias=0|1 norm=1 "

static const char *const linear_draws[] = {
    ANY_LINEAR "type=bf16 cols=24|200|1000|43",
    NORMED "type=bf16 cols=24|200|1000|1544|4096",
    NORMED "type=fp8 cols=40|136|648|1544|4096 scales=none|one|blocks",
    NORMED "type=q8_0|q4_0|q5_1|mxfp4 cols=32|160|544|1056|4000",
    NORMED "type=q4_k|q5_k|q6_k|q2_k|iq4_xs cols=256|512|768|2304|4096",
    ANY_LINEAR "type=fp8 cols=40|136|648|43 scales=none|one|blocks",
    ANY_LINEAR "type=q8_0|q4_0|q4_1|q5_0|q5_1 cols=32|96|160|384|544|576|1056|1152",
    ANY_LINEAR "type=q4_k|q5_k|q6_k|q3_k|q2_k|iq4_xs cols=256|512|768|2304",
    NULL,
};

static const vt_impl *const linear_impls[] = {
#ifdef __x86_64__
    &linear_amx,
    &linear_avx512,
    &linear_avxvnni,
    &linear_avx2,
#elif defined(__aarch64__)
    &linear_neon,
#endif
    &linear_portable,
    &linear_cuda_ordered,
    &linear_cuda_normed,
    &linear_cuda_small,
    &linear_cuda_cublaslt,
    &linear_cuda_split_sm90,
    &linear_cuda_gemm_sm90,
    &linear_cuda_gemm_sm80,
    &linear_cuda_quant_normed,
    &linear_cuda_gemm_fp8_sm90,
    &linear_cuda_fp8_sm90,
    &linear_cuda_quant_sm90,
    &linear_cuda_quant_passes,
    &linear_cuda_quant_panels,
    &linear_cuda_any_impl,
    NULL,
};

static const vt_operand linear_operands[] = {
    {"x", offsetof(linear_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"w", offsetof(linear_args, w), VT_OPERAND_WEIGHT, true, false, 0},
    {"bias", offsetof(linear_args, bias), VT_OPERAND_F32, true, false, 0},
    {"residual", offsetof(linear_args, residual), VT_OPERAND_ACTIVATION, true, false, 0},
    {"before", offsetof(linear_args, before), VT_OPERAND_ACTIVATION, true, false, 0},
    {"norm", offsetof(linear_args, norm), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(linear_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_impl *linear_row_for(const vt_weight *w, const vt_target *t)
{
    linear_args probe = {.w = w, .scale = 1};
    return vt_op_select(&linear_op, &probe, t, NULL);
}

const vt_impl *linear_packed_row(const linear_args *args, const vt_target *t)
{
    const vt_impl *impl = vt_op_select(&linear_op, args, t, NULL);
    const vt_packing *p = impl ? impl->packing : NULL;
    if (impl && (!p || args->w->packing == p || p->bytes(args->w) == 0))
        return impl;
    vt_target portable = vt_target_cpu(VT_ISA_PORTABLE, &t->limits);
    return vt_op_select(&linear_op, args, &portable, NULL);
}

const vt_op linear_op = {
    CARD_OF(linear),
    .what = "matrix product of activations and (quantised) weights, with bias, residual, SwiGLU",
    .tolerance = 1e-4,
    .tolerance_reason = "cases' activations quantise to int8 without loss, so only the order of "
                        "fp32 sums differs; other activations lose about 0.5 % of the result's "
                        "deviation to 8-bit rounding where weights are quantised",
    .refuses = linear_refuses,
    .is = VT_OP_HEAVY,
    .packs = VT_PACKS_MATRIX,
    .row_of = linear_row_for,
    .backend = "linear",
};
