/* Short convolution: the card, its portable form and the reference. It moves 8 or 16 bytes for each
 * output and multiplies a few numbers; between the products that surround it, it costs little. */
#include "ops/short_conv/short_conv.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/short_conv/short_conv_impls.h"
#include "ops/simd_portable.h"
#include "ops/short_conv/short_conv_kernel.h"

static vt_cost short_conv_cost(const void *args, const vt_batch *batch)
{
    const short_conv_args *a = args;
    int64_t n = vt_batch_elems(a->y, batch), taps = a->w->dim[1];
    const vt_batch *b = batch ? batch : a->batch;
    int64_t slot = vt_dtype_row_bytes(a->state->dtype, (taps - 1) * a->y->dim[1]),
            state = b->n_seqs * slot, behind = vt_batch_states_behind(b) * slot;
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch),
                 .weights = vt_tensor_bytes(a->w) + (a->bias ? vt_tensor_bytes(a->bias) : 0),
                 .kv = state},
        .write = {.activations = vt_batch_bytes(a->y, batch), .kv = state + behind},
        .flops = {.fp32 = (2 * taps + (a->silu ? 3 : 1) + (a->bias != NULL)) * n}};
}

/* Returns v of a channel at a token of the batch. */
static double input(const short_conv_args *a, int64_t t, int64_t i)
{
    float x = tensor_get(a->x, t, i);
    return a->silu ? x : x * tensor_get(a->x, t, 2 * a->y->dim[1] + i);
}

/* Returns v of a channel, `back` positions before token t of sequence s; in the state, or 0, where
 * that is before the sequence's first token. */
static double earlier(const short_conv_args *a, int64_t s, int64_t t, int64_t back, int64_t i)
{
    int64_t hidden = a->y->dim[1], first = a->batch->q_start[s], taps = a->w->dim[1];
    int32_t from = a->batch->state_from[s];
    if (t - back >= first)
        return input(a, t - back, i);
    int64_t row = taps - 1 - (back - (t - first)); /* of the state, oldest first */
    return from < 0 ? 0 : (double)tensor_get(a->state, from, row * hidden + i);
}

/* Writes a channel's state before token `end` of sequence s to a slot. */
static void reference_store(const short_conv_args *a, int64_t s, int64_t end, int64_t i,
                            int32_t slot)
{
    int64_t hidden = a->y->dim[1], taps = a->w->dim[1];
    double next[SHORT_CONV_TAPS_MOST];
    for (int64_t j = 0; j < taps - 1; j++)
        next[j] = earlier(a, s, end, taps - 1 - j, i);
    for (int64_t j = 0; j < taps - 1; j++)
        tensor_set(a->state, slot, j * hidden + i, (float)next[j]);
}

static void short_conv_reference(const void *args)
{
    const short_conv_args *a = args;
    const vt_batch *b = a->batch;
    int64_t hidden = a->y->dim[1], taps = a->w->dim[1];
    for (int64_t s = 0; s < b->n_seqs; s++)
        for (int64_t i = 0; i < hidden; i++) {
            int64_t end = b->q_start[s + 1];
            for (int64_t t = b->q_start[s]; t < end; t++) {
                double sum = a->bias ? (double)tensor_get(a->bias, 0, i) : 0;
                for (int64_t j = 0; j < taps; j++)
                    sum += (double)tensor_get(a->w, i, j) * earlier(a, s, t, taps - 1 - j, i);
                double gate = a->silu ? 1 / (1 + exp(-sum)) : tensor_get(a->x, t, hidden + i);
                tensor_set(a->y, t, i, (float)(gate * sum));
            }
            reference_store(a, s, end, i, b->state_to[s]);
            for (int64_t t = end - 1; b->state_behind && t >= b->q_start[s]; t--)
                if (b->state_behind[t] >= 0) /* the first may write over what the others read */
                    reference_store(a, s, t + 1, i, b->state_behind[t]);
        }
}

enum { TOKENS, DECODES, HIDDEN, TAPS, TYPE, FORM, GUESSES, BIAS };

static const char *const forms[] = {"gated", "silu", NULL};

static const vt_field short_conv_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [DECODES] = {"decodes", 0, false, 4096, .grows = VT_GROWS_SEQS},
    [HIDDEN] = {"hidden", 2048, false, 1 << 14},
    [TAPS] = {"taps", 3, false, SHORT_CONV_TAPS_MOST},
    [TYPE] = {"type", VT_BF16, true},
    [FORM] = {"form", 0, false, 1, forms},
    [GUESSES] = {"guesses", 0, false, 1 << 16},
    [BIAS] = {"bias", 0, false, 1},
};

static const char *short_conv_refuses(const vt_case *c)
{
    if (c->p[GUESSES] >= c->p[TOKENS])
        return "guesses: fewer than tokens";
    return c->p[TYPE] > VT_BF16 ? "type: f32, f16 or bf16" : NULL;
}

/* tokens: of a prefill, with decodes in the same batch; guesses: the last tokens of the prefill are
 * guesses, and the state behind each is kept */
static const char *const short_conv_cases[] = {
    "*tokens=1|512 hidden=2048",
    "*tokens=1|512 hidden=8192 taps=4 type=f32 form=silu",
    "tokens=1|2|33 decodes=5 hidden=100 taps=3",
    "tokens=9 decodes=2 hidden=64 taps=1|2|8 type=f32",
    "tokens=3|7 decodes=4 hidden=75 taps=4 form=silu",
    "tokens=1|6 decodes=2 hidden=75 taps=4 form=gated|silu bias=1",
    "tokens=2|8 guesses=1 decodes=3 hidden=70 taps=4 form=silu",
    "tokens=8 guesses=7 hidden=70 taps=2|3",
    "tokens=150 decodes=3 hidden=72 taps=4 form=gated|silu bias=1",
    "tokens=140 guesses=5 decodes=2 hidden=64 taps=3|8 form=silu",
    NULL,
};

static const char *const short_conv_draws[] = {
    "tokens=~90 decodes=0|0|3 hidden=~300 taps=1..8 type=f32|f16|bf16 form=gated|silu "
    "bias=0|1",
    "tokens=8 guesses=0..7 decodes=0|3 hidden=~300 taps=1..8 form=gated|silu",
    NULL,
};

static void *short_conv_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t hidden = c->p[HIDDEN], taps = c->p[TAPS], kept = taps > 1 ? (taps - 1) * hidden : 1,
            parts = c->p[FORM] ? 1 : 3;
    short_conv_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = case_stateful_batch(arena, (int32_t)c->p[DECODES], (int32_t)c->p[TOKENS],
                                      (int32_t)c->p[GUESSES], &seed);
    if (!a || !b)
        return NULL;
    *a = (short_conv_args){
        .batch = b,
        .x = case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, parts * hidden), 0, 1,
                       &seed),
        .w = case_fill(arena, case_tensor_2d(arena, (vt_dtype)c->p[TYPE], hidden, taps), 0, 0.5f,
                       &seed),
        .bias = c->p[BIAS] ? case_fill(arena, case_tensor_1d(arena, VT_F32, hidden), 0, 0.5f, &seed)
                           : NULL,
        .state = case_fill(arena, case_tensor_2d(arena, VT_F32, case_state_slots(b), kept), 0, 1,
                           &seed),
        .y = case_tensor_2d(arena, VT_F32, b->n_tokens, hidden),
        .silu = c->p[FORM] != 0};
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
    p[FORM] = a->silu;
    p[BIAS] = a->bias != NULL;
    p[GUESSES] = case_guesses_of(batch ? batch : a->batch, p[TOKENS]);
}

static const vt_impl *const short_conv_impls[] = {
    CPU_ROWS(short_conv),
    &short_conv_cuda_runs,
    &short_conv_cuda,
    NULL,
};

static const vt_operand short_conv_operands[] = {
    {"batch", offsetof(short_conv_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"x", offsetof(short_conv_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"w", offsetof(short_conv_args, w), VT_OPERAND_F32, true, false, 0},
    {"bias", offsetof(short_conv_args, bias), VT_OPERAND_F32, true, false, 0},
    {"state", offsetof(short_conv_args, state), VT_OPERAND_F32, true, true, 0},
    {"y", offsetof(short_conv_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op short_conv_op = {
    CARD_OF(short_conv),
    .what = "convolves each channel with its last few tokens, between two gates or before silu",
    .tolerance = 2e-6,
    .tolerance_reason =
        "a sum of at most 8 fp32 products, each rounded, times a gate; a polynomial "
        "exponential within 1.5e-7",
    .refuses = short_conv_refuses,
};
