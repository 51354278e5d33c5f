/* The cos/sin table, with the schemes that stretch a model's context. Everything is double until
 * the last rounding: at position 100,000 an fp32 angle is off by 0.004 rad, which is visible in the
 * logits.
 *
 *   inverse frequency of pair i:  f_i = base^(-2 i / dims)
 *   linear   f_i / factor                                   (Chen et al. 2306.15595)
 *   llama3   long waves / factor, short ones untouched, a ramp between (Llama 3.1)
 *   yarn     a ramp over i between f_i / factor and f_i; cos and sin times attn_factor
 *                                                           (Peng et al. 2309.00071)
 *
 * The definitions follow Hugging Face's modeling_rope_utils; tests/unit/test_op_rope.c holds them
 * against its tables (tools/fixtures/rope_tables.py). */
#include <math.h>

#include "ops/rope/rope.h"

#define PI 3.14159265358979323846

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

/* The pair index whose wave makes `turns` turns over the original context. */
static double yarn_index(const vt_rope_params *p, double turns)
{
    return p->dims * log(p->original_context / (turns * 2 * PI)) / (2 * log(p->base));
}

static double yarn_frequency(const vt_rope_params *p, double f, int32_t i)
{
    double low = yarn_index(p, p->beta_fast), high = yarn_index(p, p->beta_slow);
    if (p->yarn_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, p->dims - 1);
    if (low == high)
        high += 0.001; /* no division by zero */
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return f / p->factor * ramp + f * (1 - ramp);
}

static double frequency(const vt_rope_params *p, int32_t i)
{
    double f = pow(p->base, -2.0 * i / p->dims);
    switch (p->scaling) {
    case VT_ROPE_LINEAR:
        return f / p->factor;
    case VT_ROPE_LLAMA3:
        return llama3_frequency(p, f);
    case VT_ROPE_YARN:
        return yarn_frequency(p, f, i);
    case VT_ROPE_PLAIN:
        break;
    }
    return f;
}

static double amplitude(const vt_rope_params *p)
{
    if (p->scaling != VT_ROPE_YARN)
        return 1;
    if (p->attn_factor != 0)
        return p->attn_factor;
    return p->factor <= 1 ? 1 : 0.1 * log(p->factor) + 1;
}

void rope_table(const vt_rope_params *p, int64_t first, int64_t positions, float *cos_sin)
{
    int32_t half = p->dims / 2;
    double scale = amplitude(p);
    for (int32_t i = 0; i < half; i++) {
        double f = frequency(p, i);
        for (int64_t row = 0; row < positions; row++) {
            double angle = (double)(first + row) * f;
            cos_sin[row * p->dims + i] = (float)(cos(angle) * scale);
            cos_sin[row * p->dims + half + i] = (float)(sin(angle) * scale);
        }
    }
}
