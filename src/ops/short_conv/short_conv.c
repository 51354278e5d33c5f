/* Short convolution: the card, its row for a CPU and the reference. It moves 16 bytes for each
 * output and multiplies a few numbers; between the products that surround it, it costs little.
 *
 * A worker takes a range of channels of one sequence through all its tokens. So a slot may be read
 * and written by one sequence: each worker writes only the channels that it has read. The order of
 * the additions is the same for every token, so that neither chunks nor batches change a bit. */
#include "ops/short_conv/short_conv.h"

#include <stddef.h>

#include "ops/access.h"
#include "ops/cases.h"
#include "ops/cut.h"
#include "ops/short_conv/short_conv_impls.h"

static vt_cost short_conv_cost(const void *args, const vt_batch *batch)
{
    const short_conv_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch), taps = a->w->dim[1];
    int64_t state = (int64_t)(batch ? batch : a->batch)->n_seqs *
                    vt_dtype_row_bytes(a->state->dtype, a->state->dim[1]);
    return (vt_cost){.read = {.activations = vt_batch_bytes(a->x, batch),
                              .weights = vt_tensor_bytes(a->w),
                              .kv = state},
                     .write = {.activations = vt_batch_bytes(a->y, batch), .kv = state},
                     .flops = {.fp32 = (2 * taps + 1) * n}};
}

/* Returns v of a channel, `back` positions before token t of sequence s; in the state, or 0, where
 * that is before the sequence's first token. */
static double earlier(const short_conv_args *a, int64_t s, int64_t t, int64_t back, int64_t i)
{
    int64_t hidden = a->y->dim[1], first = a->batch->q_start[s], taps = a->w->dim[1];
    int32_t from = a->batch->state_from[s];
    if (t - back >= first)
        return (float)(tensor_get(a->x, t - back, i) * tensor_get(a->x, t - back, 2 * hidden + i));
    int64_t row = taps - 1 - (back - (t - first)); /* of the state, oldest first */
    return from < 0 ? 0 : (double)tensor_get(a->state, from, row * hidden + i);
}

static void short_conv_reference(const void *args)
{
    const short_conv_args *a = args;
    const vt_batch *b = a->batch;
    int64_t hidden = a->y->dim[1], taps = a->w->dim[1];
    double next[SHORT_CONV_TAPS_MOST];
    for (int64_t s = 0; s < b->n_seqs; s++)
        for (int64_t i = 0; i < hidden; i++) {
            int64_t end = b->q_start[s + 1];
            for (int64_t t = b->q_start[s]; t < end; t++) {
                double sum = 0;
                for (int64_t j = 0; j < taps; j++)
                    sum += (double)tensor_get(a->w, i, j) * earlier(a, s, t, taps - 1 - j, i);
                tensor_set(a->y, t, i, (float)(tensor_get(a->x, t, hidden + i) * sum));
            }
            for (int64_t j = 0; j < taps - 1; j++)
                next[j] = earlier(a, s, end, taps - 1 - j, i);
            for (int64_t j = 0; j < taps - 1; j++)
                tensor_set(a->state, b->state_to[s], j * hidden + i, (float)next[j]);
        }
}

enum { CHANNELS = 64 /* of a sequence that are one piece of work */ };

/* Channels [i, i + n) of a sequence, from its first token to its last. v[j] holds what tap j
 * multiplies. */
static void run_channels(const short_conv_args *a, int64_t s, int64_t i, int64_t n)
{
    int64_t hidden = a->y->dim[1], taps = a->w->dim[1];
    int32_t from = a->batch->state_from[s], to = a->batch->state_to[s];
    float v[SHORT_CONV_TAPS_MOST][CHANNELS], w[SHORT_CONV_TAPS_MOST][CHANNELS];
    for (int64_t j = 0; j < taps; j++)
        for (int64_t k = 0; k < n; k++) {
            w[j][k] = tensor_get(a->w, i + k, j);
            v[j][k] = j == 0 || from < 0 ? 0 : row_f32(a->state, from)[(j - 1) * hidden + i + k];
        }
    for (int64_t t = a->batch->q_start[s]; t < a->batch->q_start[s + 1]; t++) {
        const float *b = row_f32(a->x, t) + i, *c = b + hidden, *u = c + hidden;
        float *y = row_f32(a->y, t) + i;
        for (int64_t k = 0; k < n; k++) {
            float sum = 0;
            for (int64_t j = 0; j + 1 < taps; j++) {
                v[j][k] = v[j + 1][k];
                sum += w[j][k] * v[j][k];
            }
            v[taps - 1][k] = b[k] * u[k];
            y[k] = c[k] * (sum + w[taps - 1][k] * v[taps - 1][k]);
        }
    }
    for (int64_t j = 1; j < taps; j++)
        for (int64_t k = 0; k < n; k++)
            row_f32(a->state, to)[(j - 1) * hidden + i + k] = v[j][k];
}

static vt_status short_conv_run(const void *args, const vt_lane *lane)
{
    const short_conv_args *a = args;
    int64_t hidden = a->y->dim[1], pieces = vt_ceil_div(hidden, CHANNELS), begin, end;
    vt_lane_share(lane, a->batch->n_seqs * pieces, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t i = unit % pieces * CHANNELS, left = hidden - i;
        run_channels(a, unit / pieces, i, left < CHANNELS ? left : CHANNELS);
    }
    return VT_OK;
}

static bool short_conv_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const short_conv_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && a->state->dtype == VT_F32 &&
           dtype_is_float(a->w->dtype) && a->w->dim[1] <= SHORT_CONV_TAPS_MOST;
}

static void short_conv_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const short_conv_args *a = args;
    int64_t hidden = a->y->dim[1];
    vt_cut_shape(out, "%d sequences of %lld channels, %lld taps", size->seqs, (long long)hidden,
                 (long long)a->w->dim[1]);
    out->tile[1] = CHANNELS;
    vt_cut_cpu(out, t, size->seqs * vt_ceil_div(hidden, CHANNELS), (int32_t)sizeof(float));
}

enum { TOKENS, DECODES, HIDDEN, TAPS, TYPE };

static const vt_field short_conv_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [DECODES] = {"decodes", 0, false, 4096, .grows = VT_GROWS_SEQS},
    [HIDDEN] = {"hidden", 2048, false, 1 << 14},
    [TAPS] = {"taps", 3, false, SHORT_CONV_TAPS_MOST},
    [TYPE] = {"type", VT_BF16, true},
};

static const char *short_conv_refuses(const vt_case *c)
{
    return c->p[TYPE] > VT_BF16 ? "type: f32, f16 or bf16" : NULL;
}

/* tokens: of a prefill, with decodes in the same batch */
static const char *const short_conv_cases[] = {
    "*tokens=1|512 hidden=2048",
    "tokens=1|2|33 decodes=5 hidden=100 taps=3",
    "tokens=9 decodes=2 hidden=64 taps=1|2|8 type=f32",
    NULL,
};

static const char *const short_conv_draws[] = {
    "tokens=~90 decodes=0|0|3 hidden=~300 taps=1..8 type=f32|f16|bf16",
    NULL,
};

/* Sequence 0 begins at position 0 and so from zeros. Others read a slot of their own; every second
 * one writes the same slot, the rest write another. */
static bool give_states(vt_batch *b, vt_arena *arena)
{
    int32_t n = b->n_seqs, *from = vt_arena_alloc(arena, (size_t)n, sizeof *from),
            *to = vt_arena_alloc(arena, (size_t)n, sizeof *to);
    for (int32_t s = 0; from && to && s < n; s++) {
        bool begins = b->position[b->q_start[s]] == 0;
        from[s] = begins ? -1 : 2 * s;
        to[s] = 2 * s + s % 2;
    }
    b->state_from = from;
    b->state_to = to;
    return from && to;
}

static void *short_conv_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int32_t n_seqs = (int32_t)c->p[DECODES] + 1, tokens = (int32_t)c->p[TOKENS];
    int64_t hidden = c->p[HIDDEN], taps = c->p[TAPS];
    case_seq *seq = vt_arena_alloc(arena, (size_t)n_seqs, sizeof *seq);
    short_conv_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    if (!seq || !a)
        return NULL;
    for (int32_t s = 0; s < n_seqs - 1; s++)
        seq[s] = (case_seq){1, 1 + 11 * s};
    seq[n_seqs - 1] = (case_seq){tokens, tokens + 5};
    vt_batch *b = case_batch(arena, 16, n_seqs, seq, true, 100, &seed);
    if (!b || !give_states(b, arena))
        return NULL;
    int64_t kept = taps > 1 ? (taps - 1) * hidden : 1;
    *a = (short_conv_args){
        .batch = b,
        .x = case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, 3 * hidden), 0, 1, &seed),
        .w = case_fill(arena, case_tensor_2d(arena, (vt_dtype)c->p[TYPE], hidden, taps), 0, 0.5f,
                       &seed),
        .state = case_fill(arena, case_tensor_2d(arena, VT_F32, 2 * n_seqs, kept), 0, 1, &seed),
        .y = case_tensor_2d(arena, VT_F32, b->n_tokens, hidden)};
    outputs[0] = a->y;
    outputs[1] = a->state;
    *n_outputs = 2;
    return a->x && a->w && a->state && a->y ? a : NULL;
}

static void short_conv_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                             int64_t *p)
{
    const short_conv_args *a = args;
    (void)most_weights;
    p[DECODES] = case_decodes_of(batch ? batch : a->batch);
    p[TOKENS] = vt_batch_rows(a->y, batch) - p[DECODES];
    p[HIDDEN] = a->y->dim[1];
    p[TAPS] = a->w->dim[1];
    p[TYPE] = a->w->dtype;
}

static const vt_impl short_conv_portable = {.name = "portable",
                                            .device = VT_DEVICE_CPU,
                                            .supports = short_conv_supports,
                                            .run = short_conv_run,
                                            .describe = short_conv_describe};

static const vt_impl *const short_conv_impls[] = {&short_conv_portable, &short_conv_cuda, NULL};

static const vt_operand short_conv_operands[] = {
    {"batch", offsetof(short_conv_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"x", offsetof(short_conv_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"w", offsetof(short_conv_args, w), VT_OPERAND_F32, true, false, 0},
    {"state", offsetof(short_conv_args, state), VT_OPERAND_F32, true, true, 0},
    {"y", offsetof(short_conv_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op short_conv_op = {
    .name = "short_conv",
    .what = "convolves each channel with its last few tokens, between two gates",
    .args_size = sizeof(short_conv_args),
    .tolerance = 2e-6,
    .tolerance_reason = "a sum of at most 8 fp32 products, each rounded, times a gate",
    .cost = short_conv_cost,
    .reference = short_conv_reference,
    .fields = short_conv_fields,
    .n_fields = sizeof short_conv_fields / sizeof *short_conv_fields,
    .refuses = short_conv_refuses,
    .cases = short_conv_cases,
    .draws = short_conv_draws,
    .make_args = short_conv_make_args,
    .shape = short_conv_shape,
    .operands = short_conv_operands,
    .n_operands = sizeof short_conv_operands / sizeof *short_conv_operands,
    .impls = short_conv_impls,
};
