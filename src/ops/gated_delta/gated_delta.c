/* Gated delta rule: the card, its portable form and the reference.
 *
 * A decode reads and writes the whole state, 4 k_dim v_dim bytes a head each way, and computes 7
 * flops for each of its numbers: memory bounds it. A prefill does as many flops for each token from
 * L1, a few hundredths of what the layer's products need. */
#include "ops/gated_delta/gated_delta.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/gated_delta/gated_delta_impls.h"
#include "ops/simd_portable.h"
#include "ops/gated_delta/gated_delta_kernel.h"

/* Flops of a token: for each number of S two sums, the outer product and the decay; for each of d
 * three, of q and k three, and of a decay of its own six. Sums and outer products are matrix
 * products over several tokens, which bf16 inputs leave to tensor cores. */
static vt_cost gated_delta_cost(const void *args, const vt_batch *batch)
{
    const gated_delta_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    int64_t size = (int64_t)a->v_heads * a->k_dim * a->v_dim;
    int64_t slot = vt_dtype_row_bytes(a->state->dtype, size), state = b->n_seqs * slot,
            behind = vt_batch_states_behind(b) * slot;
    int64_t products = 6 * size, rows = vt_batch_rows(a->y, batch);
    int64_t others = size + 3 * (int64_t)a->v_heads * a->v_dim +
                     6 * (int64_t)a->k_heads * a->k_dim +
                     (a->channels ? 6 * (int64_t)a->v_heads * a->k_dim : 0);
    bool bf16 = a->x->dtype == VT_BF16;
    return (vt_cost){.read = {.activations = vt_batch_bytes(a->x, batch) +
                                             vt_batch_bytes(a->a, batch) +
                                             vt_batch_bytes(a->b, batch),
                              .weights = vt_tensor_bytes(a->decay) + vt_tensor_bytes(a->dt_bias),
                              .kv = state},
                     .write = {.activations = vt_batch_bytes(a->y, batch), .kv = state + behind},
                     .flops = {.fp32 = rows * (others + (bf16 ? 0 : products)),
                               .bf16 = bf16 ? rows * products : 0}};
}

/* ---- the reference ---- */

static double inverse_length(const vt_tensor *x, int64_t t, int64_t at, int32_t n)
{
    double sum = 1e-6;
    for (int32_t i = 0; i < n; i++)
        sum += (double)tensor_get(x, t, at + i) * tensor_get(x, t, at + i);
    return 1 / sqrt(sum);
}

/* Returns e^g of row i of head j. */
static double reference_keep(const gated_delta_args *a, int64_t t, int32_t j, int32_t i)
{
    int64_t at = a->channels ? (int64_t)j * a->k_dim + i : j;
    double z = (double)tensor_get(a->a, t, at) + tensor_get(a->dt_bias, 0, at),
           decay = tensor_get(a->decay, 0, j);
    return exp((a->log_decay ? -exp(decay) : decay) * (z > 20 ? z : log1p(exp(z))));
}

/* One column of a head's state and one token. */
static void reference_column(const gated_delta_args *a, int64_t t, int32_t j, int32_t col,
                             double *s)
{
    int64_t q_at = (int64_t)gated_delta_k_head(a, j) * a->k_dim,
            k_at = q_at + (int64_t)a->k_heads * a->k_dim,
            v_at = 2 * (int64_t)a->k_heads * a->k_dim + (int64_t)j * a->v_dim + col;
    double q_by = inverse_length(a->x, t, q_at, a->k_dim) / sqrt(a->k_dim),
           k_by = inverse_length(a->x, t, k_at, a->k_dim);
    double beta = 1 / (1 + exp(-(double)tensor_get(a->b, t, j))), r = 0, y = 0;
    for (int32_t i = 0; i < a->k_dim; i++) {
        s[i] *= reference_keep(a, t, j, i);
        r += s[i] * tensor_get(a->x, t, k_at + i) * k_by;
    }
    for (int32_t i = 0; i < a->k_dim; i++) {
        s[i] += tensor_get(a->x, t, k_at + i) * k_by * beta * (tensor_get(a->x, t, v_at) - r);
        y += s[i] * tensor_get(a->x, t, q_at + i) * q_by;
    }
    tensor_set(a->y, t, (int64_t)j * a->v_dim + col, (float)y);
}

/* Writes one column of a head's state to a slot; -1: to none. */
static void reference_store(const gated_delta_args *a, int32_t slot, int64_t at, const double *s)
{
    for (int32_t i = 0; slot >= 0 && i < a->k_dim; i++)
        tensor_set(a->state, slot, at + (int64_t)i * a->v_dim, (float)s[i]);
}

static void gated_delta_reference(const void *args)
{
    const gated_delta_args *a = args;
    const vt_batch *b = a->batch;
    double s[GATED_DELTA_K_DIM_MOST];
    for (int32_t q = 0; q < b->n_seqs; q++)
        for (int32_t j = 0; j < a->v_heads; j++)
            for (int32_t col = 0; col < a->v_dim; col++) {
                int64_t at = a->state_at + (int64_t)j * a->k_dim * a->v_dim + col;
                for (int32_t i = 0; i < a->k_dim; i++)
                    s[i] = b->state_from[q] < 0 ? 0
                                                : (double)tensor_get(a->state, b->state_from[q],
                                                                     at + (int64_t)i * a->v_dim);
                for (int64_t t = b->q_start[q]; t < b->q_start[q + 1]; t++) {
                    reference_column(a, t, j, col, s);
                    reference_store(a, b->state_behind ? b->state_behind[t] : -1, at, s);
                }
                reference_store(a, b->state_to[q], at, s);
            }
}

/* ---- the card ---- */

enum { TOKENS, DECODES, K_HEADS, V_HEADS, K_DIM, V_DIM, DECAY, MAP, BEFORE, TYPE, GUESSES, GATES };

static const char *const decays[] = {"plain", "log", NULL};
static const char *const maps[] = {"grouped", "tiled", NULL};
static const char *const gates[] = {"heads", "channels", NULL};

static const vt_field gated_delta_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [DECODES] = {"decodes", 0, false, 4096, .grows = VT_GROWS_SEQS},
    [K_HEADS] = {"k_heads", 16, false, 256},
    [V_HEADS] = {"v_heads", 32, false, 256},
    [K_DIM] = {"k_dim", 128, false, GATED_DELTA_K_DIM_MOST},
    [V_DIM] = {"v_dim", 128, false, 1024},
    [DECAY] = {"decay", 0, false, 1, decays},
    [MAP] = {"map", 0, false, 1, maps},
    [BEFORE] = {"before", 0, false, 1 << 16},
    [TYPE] = {"type", VT_F32, true},
    [GUESSES] = {"guesses", 0, false, 1 << 16},
    [GATES] = {"gates", 0, false, 1, gates},
};

static const char *gated_delta_refuses(const vt_case *c)
{
    if (c->p[TYPE] > VT_BF16)
        return "type: f32, f16 or bf16";
    if (c->p[GUESSES] >= c->p[TOKENS])
        return "guesses: fewer than tokens";
    return !c->p[MAP] && c->p[V_HEADS] % c->p[K_HEADS] != 0
               ? "v_heads: a multiple of k_heads, where these are grouped"
               : NULL;
}

/* tokens: of a prefill, with decodes in the same batch; before: numbers of a slot before the state;
 * guesses: the last tokens of the prefill are guesses, and the state behind each is kept; gates:
 * each head has a decay, or each of its channels has; of the latter some leave nothing of a state
 * and some all of it. The benched ones are of Qwen3.5-4B and Kimi Linear. */
static const char *const gated_delta_cases[] = {
    "*tokens=1|256 k_heads=16 v_heads=32",
    "*tokens=1 decodes=15 k_heads=16 v_heads=32",
    "tokens=1|2|33 decodes=5 k_heads=2 v_heads=4 k_dim=16 v_dim=16 before=36",
    "tokens=70 decodes=1 k_heads=1 v_heads=3 k_dim=40 v_dim=72 decay=log",
    "tokens=9 decodes=2 k_heads=3 v_heads=6 k_dim=5 v_dim=7 decay=log map=tiled before=3 type=bf16",
    "tokens=5 decodes=1 k_heads=4 v_heads=6 k_dim=16 v_dim=16 map=tiled",
    "tokens=3 k_heads=1 v_heads=1 k_dim=256 v_dim=130 map=tiled",
    "tokens=150 decodes=2 k_heads=1 v_heads=2 k_dim=128 v_dim=128 decay=log map=tiled",
    "tokens=67 decodes=1 k_heads=1 v_heads=2 k_dim=48 v_dim=192",
    "tokens=2|8 guesses=1 decodes=3 k_heads=2 v_heads=4 k_dim=16 v_dim=16 before=36",
    "tokens=8 guesses=7 k_heads=3 v_heads=3 k_dim=20 v_dim=70 decay=log",
    "*tokens=1|256 k_heads=32 v_heads=32 decay=log gates=channels",
    "tokens=1|2|33 decodes=5 k_heads=4 v_heads=4 k_dim=16 v_dim=16 before=36 gates=channels",
    "tokens=70 decodes=1 k_heads=1 v_heads=3 k_dim=40 v_dim=72 decay=log gates=channels",
    "tokens=9 decodes=2 k_heads=2 v_heads=2 k_dim=5 v_dim=7 decay=log before=3 type=bf16 "
    "gates=channels",
    "tokens=19 k_heads=1 v_heads=1 k_dim=256 v_dim=130 gates=channels",
    "tokens=90 decodes=2 k_heads=3 v_heads=3 k_dim=128 v_dim=33 decay=log gates=channels",
    "tokens=8 guesses=7 k_heads=3 v_heads=3 k_dim=20 v_dim=70 decay=log gates=channels",
    NULL,
};

static const char *const gated_delta_draws[] = {
    "tokens=~60 decodes=0|0|3 k_heads=1|2|3 v_heads=6 k_dim=~48 v_dim=~80 decay=plain|log "
    "map=grouped|tiled before=0|0|~20 type=f32|f16|bf16",
    "tokens=8 guesses=0..7 decodes=0|2 k_heads=1|2 v_heads=2 k_dim=~48 v_dim=~80 decay=plain|log",
    "tokens=~20 decodes=0|2 k_heads=2 v_heads=4 k_dim=128 v_dim=128|64 decay=log",
    "tokens=~200 decodes=0|2 k_heads=1 v_heads=2 k_dim=16|64|128 v_dim=32|48|64 decay=plain|log",
    "tokens=~60 decodes=0|0|3 k_heads=1|2|3 v_heads=6 k_dim=~140 v_dim=~80 decay=plain|log "
    "map=grouped|tiled before=0|0|~20 type=f32|f16|bf16 gates=channels",
    NULL,
};

static bool make_gates(gated_delta_args *a, const vt_case *c, vt_arena *arena, uint64_t *seed)
{
    int64_t heads = c->p[V_HEADS], steps = a->channels ? heads * c->p[K_DIM] : heads;
    vt_tensor *ba = case_tensor_2d(arena, VT_F32, a->batch->n_tokens, heads + steps);
    vt_tensor *decay = case_tensor_1d(arena, (vt_dtype)c->p[TYPE], heads);
    ba = case_fill(arena, ba, 0, 1.5f, seed);
    decay = case_fill(arena, decay, 0, 1, seed);
    a->dt_bias = case_fill(arena, case_tensor_1d(arena, (vt_dtype)c->p[TYPE], steps), 0, 1, seed);
    a->b = case_slice(arena, ba, 0, heads);
    a->a = case_slice(arena, ba, heads, steps);
    a->decay = decay;
    for (int64_t i = 0; decay && !a->log_decay && i < heads; i++)
        tensor_set(decay, 0, i, -expf(tensor_get(decay, 0, i)));
    for (int64_t i = 0; a->a && a->channels && i < a->batch->n_tokens * steps; i++)
        tensor_set((vt_tensor *)a->a, i / steps, i % steps,
                   8 * tensor_get(a->a, i / steps, i % steps));
    return a->a && a->b && decay && a->dt_bias;
}

static void *gated_delta_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t q_size = c->p[K_HEADS] * c->p[K_DIM], v_size = c->p[V_HEADS] * c->p[V_DIM];
    gated_delta_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = case_stateful_batch(arena, (int32_t)c->p[DECODES], (int32_t)c->p[TOKENS],
                                      (int32_t)c->p[GUESSES], &seed);
    if (!a || !b)
        return NULL;
    vt_tensor *state = case_tensor_2d(arena, VT_F32, case_state_slots(b),
                                      c->p[BEFORE] + v_size * c->p[K_DIM]);
    *a = (gated_delta_args){
        .batch = b,
        .x = case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, 2 * q_size + v_size), 0, 1,
                       &seed),
        .state = case_fill(arena, state, 0, 0.2f, &seed),
        .y = case_tensor_2d(arena, VT_F32, b->n_tokens, v_size),
        .state_at = c->p[BEFORE],
        .k_heads = (int32_t)c->p[K_HEADS],
        .v_heads = (int32_t)c->p[V_HEADS],
        .k_dim = (int32_t)c->p[K_DIM],
        .v_dim = (int32_t)c->p[V_DIM],
        .log_decay = c->p[DECAY] != 0,
        .tiled = c->p[MAP] != 0,
        .channels = c->p[GATES] != 0};
    outputs[0] = a->y;
    outputs[1] = a->state;
    *n_outputs = 2;
    return make_gates(a, c, arena, &seed) && a->x && a->state && a->y ? a : NULL;
}

static void gated_delta_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                              int64_t *p)
{
    const gated_delta_args *a = args;
    (void)most_weights;
    p[DECODES] = case_decodes_of(batch ? batch : a->batch);
    p[TOKENS] = vt_batch_rows(a->y, batch) - p[DECODES];
    p[K_HEADS] = a->k_heads;
    p[V_HEADS] = a->v_heads;
    p[K_DIM] = a->k_dim;
    p[V_DIM] = a->v_dim;
    p[DECAY] = a->log_decay;
    p[MAP] = a->tiled;
    p[BEFORE] = a->state_at;
    p[TYPE] = a->decay->dtype;
    p[GUESSES] = case_guesses_of(batch ? batch : a->batch, p[TOKENS]);
    p[GATES] = a->channels;
}

static const vt_impl *const gated_delta_impls[] = {
    CPU_ROWS(gated_delta),
    &gated_delta_cuda_decode,
    &gated_delta_cuda_chunks,
    &gated_delta_cuda_prefill,
    NULL,
};

static const vt_operand gated_delta_operands[] = {
    {"batch", offsetof(gated_delta_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"x", offsetof(gated_delta_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"a", offsetof(gated_delta_args, a), VT_OPERAND_ACTIVATION, true, false, 0},
    {"b", offsetof(gated_delta_args, b), VT_OPERAND_ACTIVATION, true, false, 0},
    {"decay", offsetof(gated_delta_args, decay), VT_OPERAND_F32, true, false, 0},
    {"dt_bias", offsetof(gated_delta_args, dt_bias), VT_OPERAND_F32, true, false, 0},
    {"state", offsetof(gated_delta_args, state), VT_OPERAND_F32, true, true, 0},
    {"y", offsetof(gated_delta_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op gated_delta_op = {
    CARD_OF(gated_delta),
    .what = "updates and reads each head's matrix of state by the gated delta rule",
    .tolerance = 2e-5,
    .tolerance_reason = "sums of up to 256 fp32 products in order, and a state that is rounded at "
                        "each of up to 100 tokens and decays",
    .refuses = gated_delta_refuses,
};
