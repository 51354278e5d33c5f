/* Short convolution over the vector type: see simd_portable.h for how this header is compiled.
 *
 * A worker takes a range of channels of one sequence through all its tokens. So a slot may be read
 * and written by one sequence: each worker writes only the channels that it has read. The order of
 * the additions is the same for every token, so that neither chunks nor batches change a bit. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/short_conv/short_conv.h"
#include "ops/short_conv/short_conv_impls.h"
#include "ops/simd_any.h"

enum { CONV_CHANNELS = 64 /* of a sequence that are one piece of work */ };

/* Token t's outputs of channels [i, i + n); v[j] + k is what tap j multiplies. */
static inline void conv_token(const short_conv_args *a, int64_t t, int64_t i, int64_t n,
                              float (*w)[CONV_CHANNELS], const float *bias,
                              float (*v)[CONV_CHANNELS])
{
    int64_t hidden = a->y->dim[1], last = a->w->dim[1] - 1;
    const float *x = row_f32(a->x, t) + i, *c = x + hidden, *u = c + hidden;
    float *y = row_f32(a->y, t) + i;
    for (int64_t k = 0; k < n; k += VF) {
        int lanes = lanes_left(k, n);
        vf sum = vf_load(bias + k), in = vf_load_n(x + k, lanes);
        for (int64_t j = 0; j < last; j++) {
            vf before = vf_load(v[j + 1] + k);
            vf_store(v[j] + k, before);
            sum = vf_fma(vf_load(w[j] + k), before, sum);
        }
        if (!a->silu)
            in = vf_mul(in, vf_load_n(u + k, lanes));
        vf_store(v[last] + k, in);
        sum = vf_fma(vf_load(w[last] + k), in, sum);
        vf gate = a->silu ? vf_div(vf_set1(1),
                                   vf_add(vf_set1(1), vf_exp2(vf_mul(sum, vf_set1(-LOG2E)))))
                          : vf_load_n(c + k, lanes);
        vf_store_n(y + k, vf_mul(sum, gate), lanes);
    }
}

/* Writes the state of channels [i, i + n) to a slot; v[j] is what tap j multiplied last. */
static inline void conv_store(const short_conv_args *a, int32_t slot, int64_t i, int64_t n,
                              float (*v)[CONV_CHANNELS])
{
    int64_t hidden = a->y->dim[1], taps = a->w->dim[1];
    for (int64_t j = 1; j < taps; j++)
        for (int64_t k = 0; k < n; k++)
            row_f32(a->state, slot)[(j - 1) * hidden + i + k] = v[j][k];
}

/* Channels [i, i + n) of a sequence, from its first token to its last. */
static inline void conv_channels(const short_conv_args *a, int64_t s, int64_t i, int64_t n)
{
    int64_t hidden = a->y->dim[1], taps = a->w->dim[1];
    const vt_batch *b = a->batch;
    int32_t from = b->state_from[s];
    float v[SHORT_CONV_TAPS_MOST][CONV_CHANNELS] = {0},
          w[SHORT_CONV_TAPS_MOST][CONV_CHANNELS] = {0}, bias[CONV_CHANNELS] = {0};
    for (int64_t k = 0; a->bias && k < n; k++)
        bias[k] = tensor_get(a->bias, 0, i + k);
    for (int64_t j = 0; j < taps; j++)
        for (int64_t k = 0; k < n; k++) {
            w[j][k] = tensor_get(a->w, i + k, j);
            v[j][k] = j == 0 || from < 0 ? 0 : row_f32(a->state, from)[(j - 1) * hidden + i + k];
        }
    for (int64_t t = b->q_start[s]; t < b->q_start[s + 1]; t++) {
        conv_token(a, t, i, n, w, bias, v);
        if (b->state_behind && b->state_behind[t] >= 0)
            conv_store(a, b->state_behind[t], i, n, v);
    }
    conv_store(a, b->state_to[s], i, n, v);
}

static vt_status short_conv_run(const void *args, const vt_lane *lane)
{
    const short_conv_args *a = args;
    int64_t hidden = a->y->dim[1], pieces = vt_ceil_div(hidden, CONV_CHANNELS), begin, end;
    vt_lane_share(lane, a->batch->n_seqs * pieces, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t i = unit % pieces * CONV_CHANNELS, left = hidden - i;
        conv_channels(a, unit / pieces, i, left < CONV_CHANNELS ? left : CONV_CHANNELS);
    }
    return VT_OK;
}

static bool short_conv_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const short_conv_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && a->state->dtype == VT_F32 &&
           dtype_is_float(a->w->dtype) && (!a->bias || dtype_is_float(a->bias->dtype)) &&
           a->w->dim[1] <= SHORT_CONV_TAPS_MOST;
}

static void short_conv_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const short_conv_args *a = args;
    int64_t hidden = a->y->dim[1];
    vt_cut_shape(out, "%d sequences of %lld channels, %lld taps", size->seqs, (long long)hidden,
                 (long long)a->w->dim[1]);
    out->tile[1] = CONV_CHANNELS;
    vt_cut_cpu(out, t, size->seqs * vt_ceil_div(hidden, CONV_CHANNELS),
               (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(short_conv) = {SIMD_IMPL(short_conv, short_conv_supports)};
