/* The cos/sin table, with the schemes that stretch a model's context. Everything is double until
 * the last rounding: at position 100,000 an fp32 angle is off by 0.004 rad, which is visible in the
 * logits.
 *
 *   inverse frequency of pair i:  f_i = base^(-2 i / span)
 *   linear   f_i / factor                                   (Chen et al. 2306.15595)
 *   llama3   long waves / factor, short ones untouched, a ramp between (Llama 3.1)
 *   yarn     a ramp over i between f_i / factor and f_i; cos and sin times attn_factor
 *                                                           (Peng et al. 2309.00071)
 *   longrope f_i / (a factor of each i); cos and sin times attn_factor
 *                                                           (Ding et al. 2402.13753)
 *
 * A rope for q alone may have an amplitude that grows with the position (vt_rope_params.temper).
 *
 * The definitions follow Hugging Face's modeling_rope_utils; tests/unit/test_op_rope.c holds them
 * against its tables (tools/fixtures/rope_tables.py). */
#include "model/rope_table.h"

#include <math.h>

#define PI 3.14159265358979323846

enum { FINE = 64, LANES = 8 };

static double llama3_frequency(const vt_rope_params *p, double f)
{
    double wave = 2 * PI / f, context = p->original_context;
    if (wave < context / p->high_freq_factor)
        return f;
    if (wave > context / p->low_freq_factor)
        return f / p->factor;
    double smooth = (context / wave - p->low_freq_factor) /
                    (p->high_freq_factor - p->low_freq_factor);
    return (1 - smooth) * f / p->factor + smooth * f;
}

static int32_t span_of(const vt_rope_params *p) { return p->span > 0 ? p->span : p->dims; }

/* The pair index whose wave makes `turns` turns over the original context. */
static double yarn_index(const vt_rope_params *p, double turns)
{
    return span_of(p) * log(p->original_context / (turns * 2 * PI)) / (2 * log(p->base));
}

static double yarn_frequency(const vt_rope_params *p, double f, int32_t i)
{
    double low = yarn_index(p, p->beta_fast), high = yarn_index(p, p->beta_slow);
    if (p->yarn_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, span_of(p) - 1);
    if (low == high)
        high += 0.001; /* no division by zero */
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return f / p->factor * ramp + f * (1 - ramp);
}

static double frequency(const vt_rope_params *p, int32_t i)
{
    double f = pow(p->base, -2.0 * i / span_of(p));
    if (i >= p->dims / 2 - p->still)
        return 0;
    switch (p->scaling) {
    case VT_ROPE_LINEAR:
        return f / p->factor;
    case VT_ROPE_LLAMA3:
        return llama3_frequency(p, f);
    case VT_ROPE_YARN:
        return yarn_frequency(p, f, i);
    case VT_ROPE_LONGROPE:
        return f / (double)p->short_factor[i];
    case VT_ROPE_PLAIN:
        break;
    }
    return f;
}

static double amplitude(const vt_rope_params *p)
{
    if (p->scaling != VT_ROPE_YARN && p->scaling != VT_ROPE_LONGROPE)
        return 1;
    if (p->attn_factor != 0)
        return p->attn_factor;
    if (p->scaling == VT_ROPE_LONGROPE)
        return 1;
    return p->factor <= 1 ? 1 : 0.1 * log(p->factor) + 1;
}

/* The factor of cos and sin at a position, beside the amplitude. */
static double temperature(const vt_rope_params *p, int64_t position)
{
    if (p->temper == 0)
        return 1;
    return 1 + p->temper * log(1 + floor((double)position / p->original_context));
}

/* Columns i0 .. i0 + n of the table's halves. The angle of position p is split as
 *
 *   p f = (p - p % FINE) f + (p % FINE) f      cos(a + b) = cos a cos b - sin a sin b
 *
 * so that sines and cosines are computed for every FINE-th position and for FINE small ones: 33
 * million pairs (128 Ki positions of a head of 512) take 0.8 s in place of 11. All in double: the
 * sum's error is some 1e-16, far below the fp32 that is kept. The split depends on the position
 * alone, so any part of a table equals the same part of the whole. */
static void fill_columns(const vt_rope_params *p, int32_t i0, int32_t n, int64_t first,
                         int64_t positions, float *cos_sin)
{
    double f[LANES] = {0}, c[LANES] = {0}, s[LANES] = {0}, scale = amplitude(p);
    double fine_c[FINE][LANES], fine_s[FINE][LANES];
    int32_t half = p->dims / 2;
    for (int32_t j = 0; j < n; j++)
        f[j] = frequency(p, i0 + j);
    for (int32_t k = 0; k < FINE; k++)
        for (int32_t j = 0; j < LANES; j++) {
            fine_c[k][j] = cos(k * f[j]);
            fine_s[k][j] = sin(k * f[j]);
        }
    for (int64_t row = 0; row < positions; row++) {
        int64_t k = (first + row) % FINE;
        for (int32_t j = 0; j < n && (k == 0 || row == 0); j++) {
            double angle = (double)(first + row - k) * f[j];
            c[j] = cos(angle) * scale;
            s[j] = sin(angle) * scale;
        }
        float *out = cos_sin + row * p->dims + i0;
        double more = temperature(p, first + row);
        for (int32_t j = 0; j < n; j++) {
            out[j] = (float)(more * (c[j] * fine_c[k][j] - s[j] * fine_s[k][j]));
            out[half + j] = (float)(more * (s[j] * fine_c[k][j] + c[j] * fine_s[k][j]));
        }
    }
}

vt_rope_params vt_rope_of_context(const vt_rope_params *p, int64_t context)
{
    vt_rope_params of = *p;
    if (p->scaling == VT_ROPE_LONGROPE && context > p->original_context)
        of.short_factor = p->long_factor;
    return of;
}

void vt_rope_table(const vt_rope_params *p, int64_t first, int64_t positions, float *cos_sin)
{
    int32_t half = p->dims / 2;
    for (int32_t i = 0; i < half; i += LANES)
        fill_columns(p, i, half - i < LANES ? half - i : LANES, first, positions, cos_sin);
}
