/* Selective state spaces: the card, its portable form and the reference.
 *
 * A decode reads and writes the whole state, 4 state_dim head_dim bytes a head each way, and
 * computes 5 flops for each of its numbers: memory bounds it. A prefill does as many flops for each
 * token from L1, a tenth of what the layer's products need. */
#include "ops/selective_state/selective_state.h"

#include <math.h>
#include <stddef.h>

#include "ops/cases.h"
#include "ops/selective_state/selective_state_impls.h"
#include "ops/simd_portable.h"
#include "ops/selective_state/selective_state_kernel.h"

/* Flops of a token: for each number of S the decay, the outer product and a sum; for each of y
 * three, of step x and of what is skipped. */
static vt_cost selective_state_cost(const void *args, const vt_batch *batch)
{
    const selective_state_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    int64_t size = (int64_t)a->heads * a->state_dim * a->head_dim;
    int64_t slot = vt_dtype_row_bytes(a->state->dtype, size), state = b->n_seqs * slot,
            behind = vt_batch_states_behind(b) * slot;
    int64_t each = 5 * size + 3 * (int64_t)a->heads * a->head_dim;
    return (vt_cost){
        .read = {.activations = vt_batch_bytes(a->x, batch) + vt_batch_bytes(a->dt, batch),
                 .weights = vt_tensor_bytes(a->decay) + vt_tensor_bytes(a->dt_bias) +
                            vt_tensor_bytes(a->skip),
                 .kv = state},
        .write = {.activations = vt_batch_bytes(a->y, batch), .kv = state + behind},
        .flops = {.fp32 = vt_batch_rows(a->y, batch) * each}};
}

/* ---- the reference ---- */

/* One column of a head's state and one token. */
static void reference_column(const selective_state_args *a, int64_t t, int32_t j, int32_t col,
                             double *s)
{
    int64_t x_at = (int64_t)j * a->head_dim + col, n = a->state_dim,
            b_at = (int64_t)a->heads * a->head_dim + j / (a->heads / a->groups) * n,
            c_at = b_at + a->groups * n;
    double z = (double)tensor_get(a->dt, t, j) + tensor_get(a->dt_bias, 0, j);
    double step = z > 20 ? z : log1p(exp(z)), decay = tensor_get(a->decay, 0, j);
    double x = tensor_get(a->x, t, x_at), y = x * tensor_get(a->skip, 0, j);
    step = fmax(step, a->step_min);
    step = a->step_max > 0 ? fmin(step, a->step_max) : step;
    double keep = exp(step * (a->log_decay ? -exp(decay) : decay));
    for (int64_t i = 0; i < n; i++) {
        s[i] = keep * s[i] + tensor_get(a->x, t, b_at + i) * step * x;
        y += s[i] * tensor_get(a->x, t, c_at + i);
    }
    tensor_set(a->y, t, x_at, (float)y);
}

/* Writes one column of a head's state to a slot; -1: to none. */
static void reference_store(const selective_state_args *a, int32_t slot, int64_t at,
                            const double *s)
{
    for (int32_t i = 0; slot >= 0 && i < a->state_dim; i++)
        tensor_set(a->state, slot, at + (int64_t)i * a->head_dim, (float)s[i]);
}

static void selective_state_reference(const void *args)
{
    const selective_state_args *a = args;
    const vt_batch *b = a->batch;
    double s[SELECTIVE_STATE_DIM_MOST];
    for (int32_t q = 0; q < b->n_seqs; q++)
        for (int32_t j = 0; j < a->heads; j++)
            for (int32_t col = 0; col < a->head_dim; col++) {
                int64_t at = a->state_at + (int64_t)j * a->state_dim * a->head_dim + col;
                int32_t from = b->state_from[q];
                for (int32_t i = 0; i < a->state_dim; i++)
                    s[i] = from < 0 ? 0 : tensor_get(a->state, from, at + (int64_t)i * a->head_dim);
                for (int64_t t = b->q_start[q]; t < b->q_start[q + 1]; t++) {
                    reference_column(a, t, j, col, s);
                    reference_store(a, b->state_behind ? b->state_behind[t] : -1, at, s);
                }
                reference_store(a, b->state_to[q], at, s);
            }
}

/* ---- the card ---- */

enum { TOKENS, DECODES, HEADS, GROUPS, HEAD_DIM, STATE_DIM, DECAY, LIMITS, BEFORE, TYPE, GUESSES };

static const char *const decays[] = {"plain", "log", NULL};
static const char *const limits[] = {"none", "both", NULL};

static const vt_field selective_state_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [DECODES] = {"decodes", 0, false, 4096, .grows = VT_GROWS_SEQS},
    [HEADS] = {"heads", 48, false, 256},
    [GROUPS] = {"groups", 1, false, 256},
    [HEAD_DIM] = {"head_dim", 64, false, 1024},
    [STATE_DIM] = {"state_dim", 128, false, SELECTIVE_STATE_DIM_MOST},
    [DECAY] = {"decay", 0, false, 1, decays},
    [LIMITS] = {"limits", 0, false, 1, limits},
    [BEFORE] = {"before", 0, false, 1 << 16},
    [TYPE] = {"type", VT_F32, true},
    [GUESSES] = {"guesses", 0, false, 1 << 16},
};

static const char *selective_state_refuses(const vt_case *c)
{
    if (c->p[TYPE] > VT_BF16)
        return "type: f32, f16 or bf16";
    if (c->p[GUESSES] >= c->p[TOKENS])
        return "guesses: fewer than tokens";
    return c->p[HEADS] % c->p[GROUPS] != 0 ? "heads: a multiple of groups" : NULL;
}

/* tokens: of a prefill, with decodes in the same batch; before: numbers of a slot before the state;
 * guesses: the last tokens of the prefill are guesses, and the state behind each is kept; limits:
 * steps are within 0.5 and 1. The benched ones are of Granite 4 H-Tiny. */
static const char *const selective_state_cases[] = {
    "*tokens=1|256",
    "*tokens=1 decodes=15",
    "tokens=1|2|33 decodes=5 heads=4 groups=2 head_dim=16 state_dim=16 before=36",
    "tokens=70 decodes=1 heads=3 head_dim=72 state_dim=40 decay=log",
    "tokens=9 decodes=2 heads=6 groups=3 head_dim=7 state_dim=5 decay=log before=3 type=bf16",
    "tokens=5 decodes=1 heads=4 head_dim=16 state_dim=16 limits=both",
    "tokens=3 heads=1 head_dim=130 state_dim=256",
    "tokens=2|8 guesses=1 decodes=3 heads=4 head_dim=16 state_dim=16 before=36",
    "tokens=8 guesses=7 heads=3 groups=3 head_dim=70 state_dim=20 decay=log",
    NULL,
};

static const char *const selective_state_draws[] = {
    "tokens=~60 decodes=0|0|3 heads=6 groups=1|2|3 head_dim=~80 state_dim=~48 decay=plain|log "
    "limits=none|both before=0|0|~20 type=f32|f16|bf16",
    "tokens=8 guesses=0..7 decodes=0|2 heads=2 groups=1|2 head_dim=~80 state_dim=~48 decay=log",
    "tokens=~20 decodes=0|2 heads=4 groups=2 head_dim=64|80 state_dim=128 decay=log",
    NULL,
};

static bool make_gates(selective_state_args *a, const vt_case *c, vt_arena *arena, uint64_t *seed)
{
    int64_t heads = c->p[HEADS];
    vt_dtype type = (vt_dtype)c->p[TYPE];
    vt_tensor *wide = case_fill(arena, case_tensor_2d(arena, VT_F32, a->batch->n_tokens, 2 * heads),
                                0, 1.5f, seed);
    vt_tensor *decay = case_fill(arena, case_tensor_1d(arena, type, heads), 0, 1, seed);
    a->dt_bias = case_fill(arena, case_tensor_1d(arena, type, heads), 0, 1, seed);
    a->skip = case_fill(arena, case_tensor_1d(arena, type, heads), 1, 0.3f, seed);
    a->dt = case_slice(arena, wide, heads, heads);
    a->decay = decay;
    for (int64_t i = 0; decay && !a->log_decay && i < heads; i++)
        tensor_set(decay, 0, i, -expf(tensor_get(decay, 0, i)));
    return a->dt && decay && a->dt_bias && a->skip;
}

static void *selective_state_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                       vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t inner = c->p[HEADS] * c->p[HEAD_DIM], shared = c->p[GROUPS] * c->p[STATE_DIM];
    selective_state_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = case_stateful_batch(arena, (int32_t)c->p[DECODES], (int32_t)c->p[TOKENS],
                                      (int32_t)c->p[GUESSES], &seed);
    if (!a || !b)
        return NULL;
    vt_tensor *state = case_tensor_2d(arena, VT_F32, case_state_slots(b),
                                      c->p[BEFORE] + inner * c->p[STATE_DIM]);
    *a = (selective_state_args){
        .batch = b,
        .x = case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, inner + 2 * shared), 0,
                       0.5f, &seed),
        .state = case_fill(arena, state, 0, 0.2f, &seed),
        .y = case_tensor_2d(arena, VT_F32, b->n_tokens, inner),
        .state_at = c->p[BEFORE],
        .heads = (int32_t)c->p[HEADS],
        .groups = (int32_t)c->p[GROUPS],
        .head_dim = (int32_t)c->p[HEAD_DIM],
        .state_dim = (int32_t)c->p[STATE_DIM],
        .step_min = c->p[LIMITS] ? 0.5f : 0,
        .step_max = c->p[LIMITS] ? 1 : 0,
        .log_decay = c->p[DECAY] != 0};
    outputs[0] = a->y;
    outputs[1] = a->state;
    *n_outputs = 2;
    return make_gates(a, c, arena, &seed) && a->x && a->state && a->y ? a : NULL;
}

static void selective_state_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                                  int64_t *p)
{
    const selective_state_args *a = args;
    (void)most_weights;
    p[DECODES] = case_decodes_of(batch ? batch : a->batch);
    p[TOKENS] = vt_batch_rows(a->y, batch) - p[DECODES];
    p[HEADS] = a->heads;
    p[GROUPS] = a->groups;
    p[HEAD_DIM] = a->head_dim;
    p[STATE_DIM] = a->state_dim;
    p[DECAY] = a->log_decay;
    p[LIMITS] = a->step_max > 0;
    p[BEFORE] = a->state_at;
    p[TYPE] = a->decay->dtype;
    p[GUESSES] = case_guesses_of(batch ? batch : a->batch, p[TOKENS]);
}

static const vt_impl *const selective_state_impls[] = {
    CPU_ROWS(selective_state),
    &selective_state_cuda_decode,
    &selective_state_cuda_prefill,
    NULL,
};

static const vt_operand selective_state_operands[] = {
    {"batch", offsetof(selective_state_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"x", offsetof(selective_state_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"dt", offsetof(selective_state_args, dt), VT_OPERAND_ACTIVATION, true, false, 0},
    {"decay", offsetof(selective_state_args, decay), VT_OPERAND_F32, true, false, 0},
    {"dt_bias", offsetof(selective_state_args, dt_bias), VT_OPERAND_F32, true, false, 0},
    {"skip", offsetof(selective_state_args, skip), VT_OPERAND_F32, true, false, 0},
    {"state", offsetof(selective_state_args, state), VT_OPERAND_F32, true, true, 0},
    {"y", offsetof(selective_state_args, y), VT_OPERAND_ACTIVATION, false, true, 0},
};

const vt_op selective_state_op = {
    CARD_OF(selective_state),
    .what = "updates and reads each head's matrix of state as Mamba-2 does",
    .tolerance = 2e-5,
    .tolerance_reason = "sums of up to 256 fp32 products in order, and a state that is rounded at "
                        "each of up to 256 tokens and decays",
    .refuses = selective_state_refuses,
};
